"""What happened: the events, the state that is folded from them, the recorder that writes them, and the stores."""
