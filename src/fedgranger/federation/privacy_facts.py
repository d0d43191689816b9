"""What a run's noise was, what it costs and what it does not cover: facts for the manifest."""

from __future__ import annotations

from collections.abc import Mapping

from fedgranger.config import RunConfig
from fedgranger.federation.codec import Packet
from fedgranger.federation.gradient_noise import gradient_size
from fedgranger.manifest_types import ClientPrivacy, PrivacyFacts, ReleaseFacts
from fedgranger.privacy.accounting import composed, epsilon_of
from fedgranger.privacy.coverage import not_covered
from fedgranger.privacy.sensitivity import memoryless
from fedgranger.privacy.terms import PrivacyTerms

MOST_CLIPPED = 0.01
"""A larger share of clipped states is worth a warning."""
EACH_ROUND = ("augmented", "feedback")


def privacy_facts(
    config: RunConfig, hellos: Mapping[str, Packet], num_steps: int, rounds: int
) -> PrivacyFacts | None:
    """Facts of a run with so many rounds of FedGC; None where no noise was asked for."""
    terms = config.terms
    if terms is None:
        return None
    clients = {
        name: _client(config, terms, packet, num_steps, rounds, len(hellos))
        for name, packet in sorted(hellos.items())
    }
    return PrivacyFacts(
        direction=config.privacy,
        neighbours=terms.neighbours.words(),
        delta=terms.delta,
        epsilon=max(client.epsilon for client in clients.values()),
        clients=clients,
    )


def clipping_warnings(facts: PrivacyFacts | None) -> list[str]:
    """Sentences on clients whose states were clipped too often to be taken for unbiased."""
    clients = {} if facts is None else facts.clients
    return [
        f"client '{name}': about {100 * client.clipped_share:.2g} % of its states were longer "
        "than the clipping bound and were shortened, so influences from and on it are "
        "underestimated; raise 'clip' (it costs more noise), or let the site declare its states' "
        "real size (state_cov in its model)"
        for name, client in clients.items()
        if client.clipped_share > MOST_CLIPPED
    ]


def _client(
    config: RunConfig,
    terms: PrivacyTerms,
    packet: Packet,
    num_steps: int,
    rounds: int,
    num_clients: int,
) -> ClientPrivacy:
    is_to_server = config.privacy == "to-server"
    dim, noise, released = len(packet.arrays["error_cov"]), None, []
    if is_to_server:
        sizes = terms.sizes(
            dim, num_steps, has_tests=config.test != "none", has_rounds=config.solver != "none"
        )
        for message, size in sizes._asdict().items():
            times = rounds if message in EACH_ROUND else 1
            times -= 1 if message == "feedback" and times else 0
            if size > 0 and times:
                released.append(_release(message, times, size, terms.delta))
        if sizes.states:
            noise = memoryless(terms.bound(dim), terms.neighbours, num_steps) / sizes.states
    elif rounds > 1:  # the last round's gradients are not sent
        size = gradient_size(config, num_steps - 1, num_clients)
        released.append(_release("gradients", rounds - 1, size, terms.delta))
    total = composed(part.size for part in released for _ in range(part.times))
    return ClientPrivacy(
        epsilon=epsilon_of(total, terms.delta),
        added_noise=noise,
        clipped_share=float(packet.values["clipped_share"]),
        messages=released,
        not_covered=list(
            not_covered(
                is_declared=bool(packet.values["is_declared"]),
                has_season=config.period != "none",
                is_to_server=is_to_server,
            )
        ),
    )


def _release(message: str, times: int, size: float, delta: float) -> ReleaseFacts:
    """`epsilon` is of all times together."""
    epsilon = epsilon_of(composed([size] * times), delta)
    return ReleaseFacts(message=message, times=times, size=size, epsilon=epsilon)
