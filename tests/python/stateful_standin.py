# SPDX-License-Identifier: Apache-2.0
"""A stand-in for torchdata's StatefulDataLoader, which no distribution packages. It is not
torchdata's code: it does what torchdata's documentation says about a data set or sampler that has
state_dict() and load_state_dict().

Without workers the loader's state includes the data set's present state. With workers each has its
own copy of the data set: the saved state is loaded, then the iterator is made; its state is taken
before the first batch and after each, and sent with the batch. The loader's state consists of each
worker's state at the latest batch that the loop got, and of the number of the next worker. A state
can be continued with the number of workers that it had. Samplers stay in this process and run
ahead; their iterators' states are kept with the batches that they made."""
import itertools
import multiprocessing
import queue

import torch
from torch.utils.data import _utils, get_worker_info

AHEAD = 2  # batches requested of each worker in advance


def is_stateful(thing):
    return hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")


def state_of(thing):
    return thing.state_dict() if is_stateful(thing) else None


class Fetcher:
    """Batches of an iterable data set, as torch makes them."""

    def __init__(self, loader, state):
        self.loader, data = loader, loader.dataset
        if state is not None and state["dataset"] is not None:
            data.load_state_dict(state["dataset"])
        self.items = iter(data)
        if state is not None and state["iterator"] is not None:
            self.items.load_state_dict(state["iterator"])

    def state(self):
        return {"iterator": state_of(self.items), "dataset": state_of(self.loader.dataset)}

    def next(self):
        if self.loader.batch_size is None:
            return self.loader.collate(next(self.items))
        batch = list(itertools.islice(self.items, self.loader.batch_size))
        if not batch:
            raise StopIteration
        return self.loader.collate(batch)


def work(loader, worker, state, asked, answers):
    _utils.worker._worker_info = _utils.worker.WorkerInfo(
        id=worker, num_workers=loader.workers, seed=worker, dataset=loader.dataset)
    assert get_worker_info().id == worker
    torch.set_num_threads(1)
    try:
        fetcher = Fetcher(loader, state)
        answers.put((worker, "began", fetcher.state()))
        while asked.get():
            try:
                batch = fetcher.next()
            except StopIteration:
                answers.put((worker, "ended", fetcher.state()))
                continue
            answers.put((worker, batch, fetcher.state()))
    except Exception as error:  # pylint: disable=broad-except
        answers.put((worker, error, None))


class StatefulDataLoader:
    """Of an iterable data set."""

    def __init__(self, dataset, batch_size=1, num_workers=0, collate_fn=list):
        self.dataset, self.batch_size, self.collate = dataset, batch_size, collate_fn
        self.workers, self._state, self._next = num_workers, None, None

    def state_dict(self):
        return self._state if self.workers else {"single": self._fetcher.state()}

    def load_state_dict(self, state):
        if ("single" in state) != (self.workers == 0) or (
                self.workers and len(state["workers"]) != self.workers):
            raise AssertionError("a state of another number of workers")
        self._next = state

    def __iter__(self):
        state, self._next = self._next, None
        if self.workers:
            yield from self._from_workers(state)
            return
        self._fetcher = Fetcher(self, state and state["single"])
        while True:
            try:
                batch = self._fetcher.next()
            except StopIteration:
                return
            yield batch

    def _from_workers(self, state):
        context = multiprocessing.get_context("fork")
        answers = context.Queue()
        asked = [context.Queue() for _ in range(self.workers)]
        processes = [context.Process(target=work, daemon=True, args=(
            self, w, state and state["workers"][w], asked[w], answers))
            for w in range(self.workers)]
        for process in processes:
            process.start()
        try:
            yield from self._in_turn(state, asked, answers)
        finally:
            for q in asked:
                q.put(False)
            for process in processes:
                # Its pending answers would keep it alive.
                while process.is_alive():
                    try:
                        answers.get(timeout=0.02)
                    except queue.Empty:
                        pass
                process.join()

    def _in_turn(self, state, asked, answers):
        waiting = [[] for _ in range(self.workers)]

        def answer(w):
            while not waiting[w]:
                worker, batch, its = answers.get(timeout=60)
                if isinstance(batch, Exception):
                    raise batch
                waiting[worker].append((batch, its))
            return waiting[w].pop(0)

        states = [answer(w)[1] for w in range(self.workers)]
        turn = state["turn"] if state else 0
        self._state = {"workers": list(states), "turn": turn}
        for q in asked:
            for _ in range(AHEAD):
                q.put(True)
        ended = [False] * self.workers
        while not all(ended):
            w, turn = turn, (turn + 1) % self.workers
            if ended[w]:
                continue
            batch, states[w] = answer(w)
            if isinstance(batch, str):
                ended[w] = True
                continue
            asked[w].put(True)
            self._state = {"workers": list(states), "turn": turn}
            yield batch


class StatefulSampling:
    """Batches of indices, drawn `ahead` of the loop by a sampler, one by one or (batch_size None)
    in the sampler's batches; the state is that of the loop's present batch."""

    def __init__(self, sampler, batch_size, ahead):
        self.sampler, self.batch_size, self.ahead = sampler, batch_size, ahead
        self._state = self._next = None

    def state_dict(self):
        return self._state

    def load_state_dict(self, state):
        self._next = state

    def __iter__(self):
        if self._next is not None and self._next["sampler"] is not None:
            self.sampler.load_state_dict(self._next["sampler"])
        draws = iter(self.sampler)
        if self._next is not None and self._next["iterator"] is not None:
            draws.load_state_dict(self._next["iterator"])
        self._next, drawn = None, []
        while True:
            while len(drawn) < self.ahead:
                batch = next(draws, None) if self.batch_size is None else list(
                    itertools.islice(draws, self.batch_size))
                if not batch:
                    break
                drawn.append((batch, {"sampler": state_of(self.sampler),
                                      "iterator": state_of(draws)}))
            if not drawn:
                return
            batch, self._state = drawn.pop(0)
            yield batch
