"""What all five clients stand on."""
