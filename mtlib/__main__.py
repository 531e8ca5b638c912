from mtlib.cli import main

main()
