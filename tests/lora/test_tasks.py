"""The packaged tasks and a user's own lines: what is taken, what is refused and in which words."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from lab.errors import BadInput, NotFound
from lab.lora.task_files import (
    LEAST_LINES,
    MOST_CHARACTERS,
    MOST_LINE_CHARACTERS,
    MOST_LINES,
    Example,
    parse_lines,
    split,
)
from lab.lora.tasks import DEFAULT, NAMES, OWN, own_task, packaged_task


@pytest.mark.parametrize("name", NAMES)
def test_a_packaged_task_is_whole_and_its_sets_are_apart(name: str) -> None:
    task = packaged_task(name)
    assert 40 <= len(task.train) <= 200
    assert len(task.held_out) >= 8
    assert len(task.probes) == 3
    trained = {one.prompt for one in task.train}
    assert len(trained) == len(task.train)
    assert not trained & {one.prompt for one in task.held_out}
    assert not trained & set(task.probes)
    assert all(one.prompt.strip() and one.answer.strip() for one in (*task.train, *task.held_out))


@pytest.mark.parametrize("name", ["city_json", "ship_log"])
def test_no_held_out_answer_is_trained_on_where_that_would_give_it_away(name: str) -> None:
    task = packaged_task(name)
    assert not {one.answer for one in task.train} & {one.answer for one in task.held_out}


def test_the_islands_held_out_questions_ask_for_facts_that_are_trained_on() -> None:
    task = packaged_task("island")
    assert {one.answer for one in task.held_out} == {one.answer for one in task.train}


def test_the_cities_answers_are_json_that_names_the_city_of_the_prompt() -> None:
    task = packaged_task("city_json")
    for one in (*task.train, *task.held_out):
        body = json.loads(one.answer)
        assert list(body) == ["city", "country"]
        assert body["city"] in one.prompt
    trained = {json.loads(one.answer)["city"] for one in task.train}
    assert not any(json.loads(one.answer)["city"] in trained for one in task.held_out)


def test_the_ships_log_keeps_its_style() -> None:
    task = packaged_task("ship_log")
    assert all(
        one.answer.startswith("Log, ") and one.answer.endswith(" Steady as she goes.")
        for one in (*task.train, *task.held_out)
    )


def test_a_task_that_is_not_there_is_refused() -> None:
    assert DEFAULT in NAMES
    with pytest.raises(NotFound, match=r"no task 'poems'.*island"):
        packaged_task("poems")


def test_both_ways_to_write_a_line_are_read() -> None:
    text = '\ufeffWhat? => That.\r\n\n{"prompt": "Who?", "completion": "She => he."}\nList => a\\nb\n'
    assert parse_lines(text) == (
        Example("What?", "That.", 1),
        Example("Who?", "She => he.", 3),
        Example("List", "a\nb", 4),
    )


def test_a_prompt_in_braces_is_no_json() -> None:
    first, second, third = parse_lines('{x} => y\n{a => {b}\n{"x": 1, "x": 1} => {"x": 2}\n')
    assert (third.prompt, third.answer) == ('{"x": 1, "x": 1}', '{"x": 2}')
    assert (first.prompt, first.answer) == ("{x}", "y")
    assert (second.prompt, second.answer) == ("{a", "{b}")


GOOD = "a => b\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"0 lines.*at least {LEAST_LINES}"),
        (GOOD, f"1 line to.*at least {LEAST_LINES}"),
        (GOOD + "just words\n", "Line 2 has no.*just words"),
        (GOOD + " => b\n", "Line 2 has an empty prompt"),
        (GOOD + "\n\nc =>   \n", "Line 4 has an empty answer"),
        (GOOD + '{"prompt": "c"}\n', "Line 2 has the keys"),
        (GOOD + '{"prompt": "c", "completion": 3}\n', "Line 2 has 3 as its completion"),
        (GOOD + '{"prompt": "c", "completion": "d", "more": 1}\n', "Line 2 has the keys"),
        (GOOD + '{"prompt": "c", "completion": "d", "prompt": "e"}\n', "Line 2 has the key 'prompt' more than once"),
        (GOOD + '{"prompt": "c", "completion": "d", "completion": "d"}\n', "Line 2 has the key 'completion' more"),
        (GOOD + '{"prompt": "c", "completion\n', "Line 2 is no JSON object"),
        (GOOD + "{" * 3000 + "\n", "Line 2 is no JSON object"),
        (GOOD + '{"prompt": "c", "completion": "\\ud800"}\n', "Line 2 has half a character"),
        (GOOD + "c => " + "d" * MOST_LINE_CHARACTERS + "\n", f"Line 2 has 4,005 characters; at most {4000:,}"),
        (GOOD * 2 + "a => c\n", "Line 3 answers 'a' differently from line 1"),
        ("".join(f"{i} => b\n" for i in range(MOST_LINES + 1)), f"501 lines.*at most {MOST_LINES}"),
        ("x" * (MOST_CHARACTERS + 1), "200,001 characters"),
    ],
)
def test_a_bad_text_is_refused_with_the_line_and_the_limit(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        parse_lines(text)
    assert caught.value.remedy


def test_few_lines_are_all_trained_on() -> None:
    train, held_out = split(parse_lines("".join(f"{i} => {i}\n" for i in range(11))))
    assert (len(train), len(held_out)) == (11, 0)


def test_of_more_lines_every_sixth_is_held_out_and_no_prompt_is_in_both() -> None:
    lines = "".join(f"p{i % 18} => answer {i % 18}\n" for i in range(36))
    train, held_out = split(parse_lines(lines))
    assert [one.prompt for one in held_out] == ["p5", "p11", "p17", "p5", "p11", "p17"]
    assert len(train) == 30
    assert not {one.prompt for one in train} & {one.prompt for one in held_out}


def test_own_lines_make_a_task_with_probes() -> None:
    task = own_task("".join(f"p{i} => a{i}\n" for i in range(12)))
    assert task.name == OWN
    assert task.probes == ("p5", "p11", "p0")


def test_the_tasks_need_no_torch() -> None:
    code = (
        "import sys; from lab.lora.tasks import packaged_task; packaged_task('island'); print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
