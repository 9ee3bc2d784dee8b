"""What passes between the parts: skills, requests, results and their JSON. Pure values without effects."""
