"""What runs and jobs did, in numbers that add up."""
