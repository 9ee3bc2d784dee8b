"""Where skills come from besides folders: installed ones, and the servers of others."""
