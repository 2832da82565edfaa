"""`python3 examples`: the main job, end to end, on real input."""

import sys

import environment

if __name__ == "__main__":
    sys.argv[1:] = environment.ensure("examples", sys.argv[1:])
    # Only importable now.
    import flights

    sys.exit(flights.main())
