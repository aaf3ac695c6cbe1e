"""`python -m trustirl`."""

from trustirl.cli import main

main()
