"""What is allowed. Rules and answers decide about requests; a skill never does."""
