"""`python -m clearhead`: the command line where its script is not on the path."""

from clearhead.cli.main import main

main()
