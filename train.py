"""Train: `python train.py agg=softmax`, `python train.py -m agg=none,softmax seed=0,1,2`, `python train.py --help`."""

from trilab.launch import main

if __name__ == "__main__":
    main()
