"""`python -m fedgranger`."""

from fedgranger.cli.app import main

main()
