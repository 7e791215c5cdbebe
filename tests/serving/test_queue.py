"""The queue: jobs are joined, refused, given up, and do not fail each other."""

import threading

import pytest

from bert_jax.serving.errors import RequestError
from bert_jax.serving.metrics import Metrics
from bert_jax.serving.queue import Queue
from bert_jax.tasks.base.predictor import EncodedExample

ROW = EncodedExample([()])


class Predictor:
    """Doubles numbers, and remembers what it computed together; 13 is an error."""

    def __init__(self):
        self.rounds = []
        self.may_go = threading.Event()

    def __call__(self, examples, encoded):
        assert self.may_go.wait(100)
        self.rounds.append(list(examples))
        if 13 in examples:
            raise ValueError("13")
        return [2 * example for example in examples]


@pytest.fixture
def predict():
    return Predictor()


@pytest.fixture
def queue(predict):
    """A queue of rounds of four rows; its thread waits for `predict.may_go`."""
    queue = Queue(batch_size=1, max_waiting=9, metrics=Metrics())
    yield queue
    predict.may_go.set()
    queue.close()


def submit(queue, predict, *examples):
    with queue.admitted(len(examples)):
        return queue.submit(predict, examples, [ROW] * len(examples))


def begin(queue, predict):
    """Gives the thread a job that it cannot finish yet."""
    future = submit(queue, predict, 0)
    while queue._waiting:
        pass
    return future


def test_what_waits_is_computed_together_in_rounds(queue, predict):
    futures = [
        begin(queue, predict),
        submit(queue, predict, 1, 2, 3, 4, 5),
        submit(queue, predict, 6),
    ]
    predict.may_go.set()
    assert [future.result(10) for future in futures] == [[0], [2, 4, 6, 8, 10], [12]]
    assert predict.rounds == [[0], [1, 2, 3, 4], [5, 6]]


def test_jobs_of_other_predictors_wait_for_their_turn(queue, predict):
    other = Predictor()
    other.may_go.set()
    futures = [begin(queue, predict), submit(queue, other, 1), submit(queue, predict, 2)]
    futures.append(submit(queue, other, 3))
    called = queue.call(lambda: "called")
    predict.may_go.set()
    assert [future.result(10) for future in futures] == [[0], [2], [4], [6]]
    assert called.result(10) == ["called"]
    assert (predict.rounds, other.rounds) == ([[0], [2]], [[1, 3]])


def test_a_full_queue_refuses_and_recovers(queue, predict):
    first = begin(queue, predict)
    second = submit(queue, predict, *range(8))
    with pytest.raises(RequestError) as full:
        submit(queue, predict, 1, 2)
    assert full.value.status == 429
    assert 1 <= int(full.value.headers["Retry-After"]) <= 60
    predict.may_go.set()
    assert (first.result(10), len(second.result(10))) == ([0], 8)
    assert submit(queue, predict, 1, 2).result(10) == [2, 4]


def test_a_queue_that_has_computed_nothing_asks_for_the_shortest_wait(predict):
    queue = Queue(batch_size=1, max_waiting=90, metrics=Metrics())
    with queue.admitted(90), pytest.raises(RequestError) as full:
        submit(queue, predict, 1)
    assert full.value.headers["Retry-After"] == "1"
    queue.close()


def test_what_is_being_encoded_counts(predict):
    metrics = Metrics()
    queue = Queue(batch_size=1, max_waiting=9, metrics=metrics)
    with queue.admitted(8):
        assert b"bert_jax_waiting_examples 8.0" in metrics.exposition()
        with pytest.raises(RequestError), queue.admitted(2):
            pytest.fail("it was admitted")
        futures = [queue.submit(predict, range(8), [ROW] * 8)]
    with pytest.raises(UnicodeError), queue.admitted(1):
        raise UnicodeError
    with queue.admitted(1):
        pass  # texts that are not computed, only tokenised
    futures.append(submit(queue, predict, 1))
    predict.may_go.set()
    assert [len(future.result(10)) for future in futures] == [8, 1]
    queue.close()
    assert b"bert_jax_waiting_examples 0.0" in metrics.exposition()


def test_a_job_that_is_given_up_is_not_computed(queue, predict):
    begin(queue, predict)
    gone, kept = submit(queue, predict, 7), submit(queue, predict, 8)
    assert gone.cancel()
    predict.may_go.set()
    assert kept.result(10) == [16]
    assert predict.rounds == [[0], [8]]


def test_an_error_is_of_its_job_alone(queue, predict):
    begin(queue, predict)
    wrong, right = submit(queue, predict, 13), submit(queue, predict, 8)
    predict.may_go.set()
    assert right.result(10) == [16]
    with pytest.raises(ValueError, match="13"):
        wrong.result(10)


def test_a_closed_queue_computes_what_waits_and_takes_nothing(predict):
    queue = Queue(batch_size=1, max_waiting=9, metrics=Metrics())
    futures = [begin(queue, predict), submit(queue, predict, *range(9))]
    closing = threading.Thread(target=queue.close)
    closing.start()
    while not queue._is_closed:
        pass
    with pytest.raises(RequestError) as closed:
        submit(queue, predict, 1)
    assert closed.value.status == 503
    predict.may_go.set()
    closing.join(100)
    assert all(future.done() for future in futures)
