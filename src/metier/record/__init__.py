"""What happened: the events, the recorder that writes them, and the stores that keep them."""
