// node sdk_test.mjs MODEL_ADDRESS SCRIPTED_ADDRESS: the vendors' own Node SDKs against a server with a small model and one with
// a script for a model. The packages are found from the folder that it runs in. Ends with "N passed, N failed".
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.cwd() + "/");
const load = async (name) => (await import(pathToFileURL(require.resolve(name)).href)).default;
const resolved = { openai: await load("openai"), anthropic: await load("@anthropic-ai/sdk") };
const OpenAI = resolved.openai.OpenAI ?? resolved.openai;
const Anthropic = resolved.anthropic.Anthropic ?? resolved.anthropic;

const [model, scripted] = process.argv.slice(2);
const openai = (address) => new OpenAI({ baseURL: address + "/v1", apiKey: "any", maxRetries: 0 });
const anthropic = (address) => new Anthropic({ baseURL: address, apiKey: "any", maxRetries: 0 });
const schema = { type: "object", properties: { city: { type: "string" } } };
const question = [{ role: "user", content: "Name three rivers." }];

const tests = {
  async "a chat stream adds up to the whole answer"() {
    for (const address of [model, scripted]) {
      const client = openai(address);
      const options = { model: "any", messages: question, temperature: 0, max_tokens: 24 };
      const whole = await client.chat.completions.create(options);
      const stream = client.chat.completions.stream({ ...options, stream_options: { include_usage: true } });
      const final = await stream.finalChatCompletion();
      assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
      assert.equal(final.choices[0].finish_reason, whole.choices[0].finish_reason);
      assert.deepEqual(final.usage, whole.usage);
    }
  },
  async "chat tools"() {
    const tools = [{ type: "function", function: { name: "weather", parameters: schema } }];
    const messages = [{ role: "user", content: "Weather, twice?" }];
    const stream = openai(scripted).chat.completions.stream({ model: "any", messages, tools });
    const message = await stream.finalMessage();
    assert.deepEqual(message.tool_calls.map((call) => JSON.parse(call.function.arguments).city), ["Paris é", "Rome"]);
    const results = message.tool_calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: "rain" }));
    const again = await openai(scripted).chat.completions.create({ model: "any", tools, messages: [...messages, message, ...results] });
    assert.equal(again.choices[0].message.content, "The tool said: rain");
  },
  async "a stream of responses ends with the whole one"() {
    for (const address of [model, scripted]) {
      const client = openai(address);
      const options = { model: "any", input: "Please think.", temperature: 0, max_output_tokens: 24 };
      const whole = await client.responses.create(options);
      const final = await client.responses.stream(options).finalResponse();
      assert.equal(final.output_text, whole.output_text);
      assert.deepEqual(final.usage, whole.usage);
      assert.deepEqual(final.output.map((item) => item.type), whole.output.map((item) => item.type));
    }
  },
  async "a stream of a message adds up to the whole one"() {
    for (const address of [model, scripted]) {
      const client = anthropic(address);
      const options = { model: "any", max_tokens: 24, temperature: 0, messages: question };
      const whole = await client.messages.create(options);
      const final = await client.messages.stream(options).finalMessage();
      assert.deepEqual(final.content, whole.content);
      assert.equal(final.stop_reason, whole.stop_reason);
      assert.deepEqual(final.usage, whole.usage);
      const counted = await client.messages.countTokens({ model: "any", messages: question });
      assert.equal(counted.input_tokens, whole.usage.input_tokens);
    }
  },
  async "message tools and thinking"() {
    const options = { model: "any", max_tokens: 100, tools: [{ name: "weather", input_schema: schema }] };
    const messages = [{ role: "user", content: "Please think, then ask twice." }];
    const message = await anthropic(scripted).messages.stream({ ...options, messages }).finalMessage();
    assert.deepEqual(message.content.map((block) => block.type), ["thinking", "text", "tool_use", "tool_use"]);
    assert.deepEqual(message.content[2].input, { city: "Paris é" });
    const results = message.content.filter((block) => block.type === "tool_use")
      .map((block) => ({ type: "tool_result", tool_use_id: block.id, content: "rain" }));
    const again = await anthropic(scripted).messages.create({
      ...options, messages: [...messages, { role: "assistant", content: message.content }, { role: "user", content: results }],
    });
    assert.equal(again.content[0].text, "The tool said: rain");
  },
  async "errors are typed"() {
    const image = [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:image/png;base64,AA==" } }] }];
    await assert.rejects(openai(model).chat.completions.create({ model: "any", messages: image }), OpenAI.BadRequestError);
    await assert.rejects(openai(model).models.retrieve("none"), OpenAI.NotFoundError);
    const long = [{ role: "user", content: "word ".repeat(9000) }];
    await assert.rejects(anthropic(model).messages.create({ model: "any", max_tokens: 5, messages: long }),
      (error) => error instanceof Anthropic.BadRequestError && /prompt is too long: \d+ tokens > \d+ maximum/.test(error.message));
  },
};

let passed = 0;
let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
    passed += 1;
  } catch (error) {
    failed += 1;
    console.log(`FAILED: ${name}: ${error.stack ?? error}`);
  }
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
