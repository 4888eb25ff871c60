"""sdk_test.py MODEL_ADDRESS SCRIPTED_ADDRESS: the vendors' own Python SDKs against a server with a small model and one with a
script for a model. Ends with "N passed, N failed"."""

import sys
import unittest

import anthropic
import openai

sys.dont_write_bytecode = True
MODEL = ""
SCRIPTED = ""
QUESTION = [{"role": "user", "content": "Name three rivers."}]
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": TOOL}}]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def openai_client(address):
    return openai.OpenAI(base_url=address + "/v1", api_key="any", max_retries=0, timeout=120)


def anthropic_client(address):
    return anthropic.Anthropic(base_url=address, api_key="any", max_retries=0, timeout=120)


class Chat(unittest.TestCase):
    def test_a_stream_adds_up_to_the_whole_answer(self):
        for address in (MODEL, SCRIPTED):
            client = openai_client(address)
            options = {"model": "any", "messages": QUESTION, "temperature": 0, "max_tokens": 24}
            whole = client.chat.completions.create(**options)
            chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            self.assertEqual(text, whole.choices[0].message.content)
            self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], whole.choices[0].finish_reason)
            self.assertEqual(chunks[-1].usage, whole.usage)
            self.assertGreater(whole.usage.completion_tokens, 0)

    def test_tools(self):
        client = openai_client(SCRIPTED)
        for stream in (False, True):
            messages = [{"role": "user", "content": "Weather, twice?"}]
            options = {"model": "any", "messages": messages, "tools": CHAT_TOOLS}
            calls, finish = {}, None
            if stream:
                for chunk in client.chat.completions.create(**options, stream=True):
                    finish = chunk.choices[0].finish_reason or finish
                    for call in chunk.choices[0].delta.tool_calls or []:
                        entry = calls.setdefault(call.index, {"id": call.id, "name": call.function.name, "arguments": ""})
                        entry["arguments"] += call.function.arguments or ""
            else:
                choice = client.chat.completions.create(**options).choices[0]
                finish = choice.finish_reason
                for i, call in enumerate(choice.message.tool_calls):
                    calls[i] = {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
            self.assertEqual(finish, "tool_calls")
            self.assertEqual([c["name"] for c in calls.values()], ["weather", "weather"])
            self.assertEqual(calls[0]["arguments"], '{"city": "Paris \\u00e9"}')
            self.assertNotEqual(calls[0]["id"], calls[1]["id"])
            messages.append({"role": "assistant", "content": None, "tool_calls": [
                {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
                for c in calls.values()]})
            messages += [{"role": "tool", "tool_call_id": c["id"], "content": "rain"} for c in calls.values()]
            self.assertEqual(client.chat.completions.create(**options).choices[0].message.content, "The tool said: rain")

    def test_errors_are_typed(self):
        client = openai_client(MODEL)
        image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + PIXEL}}]}]
        with self.assertRaises(openai.BadRequestError) as raised:
            client.chat.completions.create(model="any", messages=image)
        self.assertIn("text only", str(raised.exception))
        with self.assertRaises(openai.BadRequestError) as raised:
            client.chat.completions.create(model="any", messages=[{"role": "user", "content": "word " * 9000}])
        self.assertEqual(raised.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError) as raised:
            client.chat.completions.create(model="any", messages=QUESTION, response_format={"type": "json_object"})
        self.assertEqual(raised.exception.param, "response_format.type")
        with self.assertRaises(openai.NotFoundError):
            client.models.retrieve("no-such-model")

    def test_models_and_completions(self):
        client = openai_client(MODEL)
        self.assertEqual([model.id for model in client.models.list()], ["smollm2"])
        done = client.completions.create(model="any", prompt="One, two,", max_tokens=4, temperature=0, logprobs=2)
        self.assertEqual(len(done.choices[0].logprobs.tokens), 4)
        streamed = client.completions.create(model="any", prompt="One, two,", max_tokens=4, temperature=0, stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in streamed), done.choices[0].text)


class Responses(unittest.TestCase):
    def test_a_stream_ends_with_the_whole_response(self):
        for address in (MODEL, SCRIPTED):
            client = openai_client(address)
            options = {"model": "any", "input": "Please think.", "temperature": 0, "max_output_tokens": 24}
            whole = client.responses.create(**options)
            with client.responses.stream(**options) as stream:
                deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
                final = stream.get_final_response()
            self.assertEqual(final.output_text, whole.output_text)
            self.assertEqual(deltas, whole.output_text)
            self.assertEqual(final.status, whole.status)
            self.assertEqual(final.usage, whole.usage)
            self.assertEqual([item.type for item in final.output], [item.type for item in whole.output])

    def test_tools(self):
        client = openai_client(SCRIPTED)
        tools = [{"type": "function", "name": "weather", "parameters": TOOL, "strict": False}]
        items = [{"role": "user", "content": "Weather?"}]
        done = client.responses.create(model="any", input=items, tools=tools)
        call = [item for item in done.output if item.type == "function_call"][0]
        self.assertEqual(call.arguments, '{"city": "Paris \\u00e9"}')
        items += [item.model_dump(exclude_none=True) for item in done.output]
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": "sun"})
        again = client.responses.create(model="any", input=items, tools=tools)
        self.assertEqual(again.output_text, "The tool said: sun")


class Messages(unittest.TestCase):
    def test_a_stream_adds_up_to_the_whole_message(self):
        for address in (MODEL, SCRIPTED):
            client = anthropic_client(address)
            options = {"model": "any", "max_tokens": 24,
                       "messages": [{"role": "user", "content": "Please think of three rivers."}],
                       "extra_body": {"temperature": 0}}
            whole = client.messages.create(**options)
            with client.messages.stream(**options) as stream:
                text = "".join(stream.text_stream)
                final = stream.get_final_message()
            # The stream's helper adds members of its own.
            self.assertEqual([{name: getattr(mine, name) for name in theirs.model_dump()} for mine, theirs in
                              zip(final.content, whole.content, strict=True)], [block.model_dump() for block in whole.content])
            self.assertEqual(final.stop_reason, whole.stop_reason)
            self.assertEqual(final.usage, whole.usage)
            self.assertEqual(text, "".join(block.text for block in whole.content if block.type == "text"))
            counted = client.messages.count_tokens(model="any", messages=options["messages"])
            self.assertEqual(counted.input_tokens, whole.usage.input_tokens)

    def test_tools_and_thinking(self):
        client = anthropic_client(SCRIPTED)
        tools = [{"name": "weather", "description": "Tells it.", "input_schema": TOOL}]
        messages = [{"role": "user", "content": "Please think, then ask twice."}]
        options = {"model": "any", "max_tokens": 100, "tools": tools}
        with client.messages.stream(messages=messages, **options) as stream:
            message = stream.get_final_message()
        self.assertEqual([block.type for block in message.content], ["thinking", "text", "tool_use", "tool_use"])
        self.assertEqual(message.content[0].thinking, "Let me see.")
        self.assertTrue(message.content[0].signature)
        self.assertEqual(message.content[2].input, {"city": "Paris é"})
        self.assertEqual(message.stop_reason, "tool_use")
        messages.append({"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in message.content]})
        messages.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": b.id, "content": "rain"} for b in message.content if b.type == "tool_use"]})
        again = client.messages.create(messages=messages, **options)
        self.assertEqual(again.content[0].text, "The tool said: rain")
        self.assertEqual(again.stop_reason, "end_turn")

    def test_errors_are_typed(self):
        client = anthropic_client(MODEL)
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
        with self.assertRaises(anthropic.BadRequestError) as raised:
            client.messages.create(model="any", max_tokens=5, messages=[{"role": "user", "content": [image]}])
        self.assertIn("text only", str(raised.exception))
        with self.assertRaises(anthropic.BadRequestError) as raised:
            client.messages.create(model="any", max_tokens=5, messages=[{"role": "user", "content": "word " * 9000}])
        self.assertRegex(str(raised.exception), r"prompt is too long: \d+ tokens > \d+ maximum")


def main():
    global MODEL, SCRIPTED
    MODEL, SCRIPTED = sys.argv[1:3]
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1).run(suite)
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
