"""`python -m trustirl`."""

from trustirl.cli.main import main

main()
