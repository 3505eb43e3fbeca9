"""Runs scenarios: in each round the servers take turns, so that a noisy machine hurts them alike."""
import time

from .results import Results


def run(scenarios, servers, site, options, about, say):
    """Measures everything; what fails is noted and does not stop the rest."""
    results = Results(about, {})
    for scenario in scenarios:
        results.scenarios[scenario.name] = rows = []
        begun = time.monotonic()
        taking_part = [
            server for server in servers
            if (scenario.has_floor if server.name == "floor" else server.can(scenario.ability))]
        rounds = min(options.rounds, scenario.rounds or options.rounds)
        for number in range(rounds):
            for point in scenario.points or (None,):
                for server in taking_part:
                    rows.append(_measure(scenario, server, site, options.seconds, point, number))
        say(f"{scenario.title}: {time.monotonic() - begun:.0f} s")
        for line in _summary(results, scenario):
            say(f"    {line}")
    return results


def _measure(scenario, server, site, seconds, point, number):
    row = {"server": server.name, "round": number, "point": point}
    try:
        return {**row, "values": scenario.measure(server, site, seconds, point)}
    except Exception as error:  # noqa: BLE001 (a peer that fails is reported)
        return {**row, "failed": f"{type(error).__name__}: {error}"[:300]}


def _summary(results, scenario):
    for point in scenario.points or (None,):
        for server in results.servers(scenario.name):
            value = results.middle(scenario.name, server, scenario.figure, point)
            if value is None:
                failed = [row["failed"] for row in results.rows(scenario.name)
                          if row["server"] == server and "failed" in row]
                yield f"{server:10} failed: {failed[0] if failed else '?'}"
                continue
            ratio = results.ratio(scenario.name, server, scenario.figure, point)
            errors = results.errors(scenario.name, server)
            yield (f"{server:10} {'' if point is None else point:>8} {value:12,.1f} {scenario.figure}"
                   f"{'' if ratio is None else f'  {ratio:.2f}x'}{f'  {errors} ERRORS' if errors else ''}")
