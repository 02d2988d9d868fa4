"""Services kept open between calls."""

import threading

from catalog.core.open_services import OpenServices


class Service:
    def __init__(self):
        self.closed = 0

    def close(self):
        self.closed += 1


def test_one_service_serves_every_call_of_its_key_until_it_is_closed():
    kept = OpenServices()
    first, other = kept.get("a", Service), kept.get("b", Service)
    assert kept.get("a", Service) is first is not other
    kept.close()
    kept.close()
    assert (first.closed, other.closed) == (1, 1)
    assert kept.get("a", Service) is not first


def test_threads_that_ask_at_once_get_the_same_service():
    kept, made, barrier = OpenServices(), [], threading.Barrier(8)

    def ask():
        barrier.wait()
        made.append(kept.get("a", Service))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(service) for service in made}) == 1
