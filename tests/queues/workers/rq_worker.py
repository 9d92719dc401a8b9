"""An RQ worker, which forks a process for each job."""

from typing import Any

from queue_kit import ORDER, Kit, main
from redis import Redis
from rq import Callback, Queue, Retry, Worker
from rq.job import Job

from onceward.queues.rq import OncewardJob

kit = Kit()
gate_of_jobs = kit.gate()
connection = Redis.from_url(kit.broker)

if gate_of_jobs is None:
    job_class: Any = Job
else:

    class ShopJob(OncewardJob):
        """A job of this shop's."""

        gate = gate_of_jobs

    job_class = ShopJob


def charge(order_id: str) -> dict[str, str]:
    """Charge somebody."""
    return kit.charge(order_id)


def answered(*_: Any) -> None:
    """The job's function has returned, and RQ has not ended the job."""
    kit.die_at("answer")


def send() -> None:
    """Put the job into the queue."""
    queue = Queue(connection=connection, job_class=job_class)
    on_success = Callback("rq_worker.answered")
    queue.enqueue("rq_worker.charge", ORDER, job_id="job-1", retry=Retry(max=3), on_success=on_success)


def work() -> None:
    """Work until somebody ends this."""
    Worker(["default"], connection=connection, job_class=job_class).work()


if __name__ == "__main__":
    main(send, work)
