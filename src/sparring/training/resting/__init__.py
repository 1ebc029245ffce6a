"""Which samples train in an epoch, which are checked, and which rest."""
