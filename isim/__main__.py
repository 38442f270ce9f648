"""`python -m isim`."""

from isim.cli.main import command

command()
