"""Loops on an SDK, with tools and messages of the caller, which the adapters leave unchanged."""

from typing import Any

from anthropic.types import Message, ToolParam
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from scenario import skills

from metier.adapters.anthropic import MessagesSkills
from metier.adapters.openai import ChatSkills, ResponsesSkills
from worlds import World

WEATHER: ToolParam = {"name": "weather", "input_schema": {"type": "object"}}


def message(*blocks: object) -> Message:
    return Message.model_validate(
        {
            "id": "1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": blocks,
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    )


def use(number: int, name: str, /, **given: object) -> dict[str, object]:
    return {"type": "tool_use", "id": str(number), "name": name, "input": given}


def test_a_response_may_call_your_tools_and_several_of_ours(world: World) -> None:
    own = MessagesSkills(skills(world))
    request = own.request([{"role": "user", "content": "Hi."}], "Be kind.", [WEATHER])
    assert request["tools"][0] == WEATHER
    assert str(request.get("system")).startswith("Be kind.")
    response = message(
        {"type": "text", "text": "Let me see."},
        use(1, "weather"),
        use(2, "skill_load", name="carpentry"),
        use(3, "skill_load", name="none"),
    )
    first, second = own.dispatch(response)
    assert (first["tool_use_id"], first.get("is_error")) == ("2", False)
    assert (second["tool_use_id"], second.get("is_error")) == ("3", True)
    assert own.dispatch(message({"type": "text", "text": "Done."})) == []


def test_messages_may_be_objects_of_the_sdk(world: World) -> None:
    own = MessagesSkills(skills(world))
    response = message(use(1, "skill_load", name="carpentry"))
    messages: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "Cut."}]},
        {"role": "assistant", "content": response.content},
        {"role": "user", "content": [{**own.dispatch(response)[0]}, {"type": "text", "text": "Go on."}]},
    ]
    assert "Measure twice" not in own.request(messages).get("system", "")
    messages[2]["content"][0]["content"] = [
        {"type": "text", "text": own.session.output(own.session.state()["loaded"][0]["ref"])}
    ]
    assert "Measure twice" not in own.request(messages).get("system", "")
    assert "Measure twice" in own.request(messages[:1]).get("system", "")


def completion(*calls: tuple[str, str]) -> ChatCompletion:
    made = [
        {"id": str(number), "type": "function", "function": {"name": name, "arguments": given}}
        for number, (name, given) in enumerate(calls)
    ]
    said = {"role": "assistant", "content": None, "tool_calls": made}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": said}
    return ChatCompletion.model_validate(
        {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    )


def test_arguments_that_are_no_json_come_back_as_a_mistake(world: World) -> None:
    own = ChatSkills(skills(world))
    results = own.dispatch(completion(("weather", "{}"), ("skill_load", '{"name": '), ("skill_search", "")))
    assert [one["tool_call_id"] for one in results] == ["1", "2"]
    assert "must be a JSON object" in str(results[0]["content"])
    assert "`query` is missing" in str(results[1]["content"])


def test_without_skills_a_request_is_as_it_was(world: World) -> None:
    found = world.discover()
    said: list[Any] = [{"role": "user", "content": "Hi."}]
    assert ChatSkills(found).request(said) == {"messages": said}
    assert ResponsesSkills(found).request(said) == {"input": said}
    assert MessagesSkills(found).request(said) == {"messages": said, "tools": []}


def test_a_response_with_reasoning_and_foreign_calls_is_understood(world: World) -> None:
    own = ResponsesSkills(skills(world))
    output = [
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "id": "f", "call_id": "1", "name": "weather", "arguments": "{}"},
        {
            "type": "function_call",
            "id": "g",
            "call_id": "2",
            "name": "skill_load",
            "arguments": '{"name": "carpentry"}',
        },
    ]
    response = Response.model_validate(
        {
            "id": "r",
            "object": "response",
            "created_at": 1,
            "model": "m",
            "output": output,
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "tools": [],
        }
    )
    (result,) = own.dispatch(response)
    assert result.get("call_id") == "2"
    items: list[Any] = [{"role": "user", "content": "Cut."}, *response.output, result]
    assert "Measure twice" not in own.request(items).get("instructions", "")
