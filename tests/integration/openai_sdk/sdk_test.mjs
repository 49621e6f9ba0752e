// Runs OpenAI's own client against the gateway: node sdk_test.mjs GATEWAY FAKE_COMPUTE.
// The package `openai` is looked for in $STRATA_NPM_DIR, a node_modules folder (deploy/test fills it).
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const SKIPPED = 77;
const [gatewayPath, computePath] = process.argv.slice(2);
const npmDir = process.env.STRATA_NPM_DIR;
if (!npmDir || !existsSync(join(npmDir, 'openai'))) {
  console.log(`SKIPPED: no package 'openai' in STRATA_NPM_DIR (${npmDir ?? 'unset'}); run deploy/test`);
  process.exit(SKIPPED);
}
const { default: OpenAI } = createRequire(join(npmDir, '..', 'package.json'))('openai');

const dir = mkdtempSync(join(tmpdir(), 'strata-sdk-'));
const children = new Set();

// Starts a daemon and waits for a line on its standard error.
function start(path, args, ready) {
  const child = spawn(path, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  children.add(child);
  child.on('exit', () => children.delete(child));
  return new Promise((resolve, reject) => {
    let text = '';
    child.stderr.on('data', (data) => {
      text += data;
      const found = text.match(ready);
      if (found) resolve({ child, found });
    });
    child.on('exit', (code) => reject(new Error(`${path} ended with ${code}:\n${text}`)));
    child.on('error', reject);
  });
}

const common = ['--model', join(dir, 'fake.gguf'), '--runtime_dir', dir, '--state_dir', dir];
const startCompute = () => start(computePath, common, /fake compute is ready/);
const startGateway = (extra = '') =>
  start(gatewayPath, [...common, '--set', `gateway { listen: "127.0.0.1:0" kvstore: "none" ` +
    `expertstore: "none" ${extra} }`], /serving .* on 127\.0\.0\.1:(\d+)/);

async function eventually(what, condition) {
  for (let i = 0; i < 4800; ++i) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  assert.fail(`never happened: ${what}`);
}

const ask = (content, extra = {}) => ({
  model: 'fake', messages: [{ role: 'user', content }], ...extra });

const tests = {
  async 'whole answer'({ client }) {
    const answer = await client.chat.completions.create(ask('say Grüße 正 😀'));
    assert.equal(answer.object, 'chat.completion');
    assert.equal(answer.choices[0].message.content, 'Grüße 正 😀');
    assert.equal(answer.choices[0].finish_reason, 'stop');
    assert.equal(answer.usage.total_tokens,
      answer.usage.prompt_tokens + answer.usage.completion_tokens);
    assert.ok(answer._request_id);
  },

  async 'streamed answer with usage'({ client }) {
    const stream = await client.chat.completions.create(
      ask('say Grüße 正 😀', { stream: true, stream_options: { include_usage: true } }));
    let text = '';
    let finish = null;
    let usage = null;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? '';
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, 'Grüße 正 😀');
    assert.equal(finish, 'stop');
    assert.equal(usage.completion_tokens, Buffer.from(text).length);
  },

  async 'stream helper, n and max_tokens'({ client }) {
    const runner = client.chat.completions.stream(
      ask('say abcdef', { n: 2, max_completion_tokens: 3 }));
    const final = await runner.finalChatCompletion();
    assert.deepEqual(final.choices.map((c) => c.message.content), ['abc', 'abc']);
    assert.deepEqual(final.choices.map((c) => c.finish_reason), ['length', 'length']);
  },

  async 'stop string'({ client }) {
    const answer = await client.chat.completions.create(ask('say one STOP two', { stop: ['STOP'] }));
    assert.equal(answer.choices[0].message.content, 'one ');
  },

  async 'reasoning'({ client }) {
    const answer = await client.chat.completions.create(ask('say <think>hm</think>yes'));
    assert.equal(answer.choices[0].message.reasoning_content, 'hm');
    assert.equal(answer.choices[0].message.content, 'yes');
  },

  async 'tool calls through the stream helper'({ client }) {
    const call = (name, args) => `<tool_call>{"name":"${name}","arguments":${args}}</tool_call>`;
    const runner = client.chat.completions.stream(
      ask(`say ${call('first', '{"a":1}')}${call('second', '{}')}`, {
        tools: ['first', 'second'].map((name) => ({ type: 'function',
          function: { name, parameters: { type: 'object', properties: {} } } })),
      }));
    const message = await runner.finalMessage();
    assert.deepEqual(message.tool_calls.map((c) => [c.function.name, JSON.parse(c.function.arguments)]),
      [['first', { a: 1 }], ['second', {}]]);
    assert.equal(new Set(message.tool_calls.map((c) => c.id)).size, 2);
  },

  async 'logprobs'({ client }) {
    const answer = await client.chat.completions.create(ask('say ok', { logprobs: true }));
    assert.deepEqual(answer.choices[0].logprobs.content.map((e) => [e.token, e.logprob, e.bytes]),
      [['o', -0.5, [111]], ['k', -0.5, [107]]]);
  },

  async 'plain completions'({ client }) {
    const answer = await client.completions.create({ model: 'fake', prompt: 'say plain' });
    assert.equal(answer.choices[0].text, 'plain');
    let text = '';
    for await (const chunk of await client.completions.create(
      { model: 'fake', prompt: 'say plain', stream: true })) text += chunk.choices[0].text;
    assert.equal(text, 'plain');
  },

  async 'models'({ client }) {
    const list = await client.models.list();
    assert.deepEqual(list.data.map((m) => m.id), ['fake', 'Fake Model']);
    assert.equal((await client.models.retrieve('fake')).object, 'model');
    await assert.rejects(client.models.retrieve('other'), OpenAI.NotFoundError);
  },

  async 'cancelling a stream frees the engine'({ client, running }) {
    const stream = await client.chat.completions.create(ask('hang', { stream: true }));
    await eventually('it runs', async () => (await running()) === 1);
    stream.controller.abort();
    await eventually('it stopped', async () => (await running()) === 0);
  },

  async 'cancelling a whole answer frees the engine'({ client, running }) {
    const controller = new AbortController();
    const answer = client.chat.completions.create(ask('hang'), { signal: controller.signal });
    const rejected = assert.rejects(answer, OpenAI.APIUserAbortError);
    await eventually('it runs', async () => (await running()) === 1);
    controller.abort();
    await rejected;
    await eventually('it stopped', async () => (await running()) === 0);
  },

  async 'errors have their classes'({ client, url }) {
    const rejects = (body, type, check) =>
      assert.rejects(client.chat.completions.create(body), (error) => {
        assert.ok(error instanceof type, `${error}`);
        check(error);
        return true;
      });
    await rejects(ask('say x', { temperature: 'hot' }), OpenAI.BadRequestError,
      (e) => assert.equal(e.param, 'temperature'));
    await rejects(ask('say x', { model: 'other' }), OpenAI.NotFoundError,
      (e) => assert.equal(e.code, 'model_not_found'));
    await rejects(ask('say ' + 'x'.repeat(5000)), OpenAI.BadRequestError,
      (e) => assert.equal(e.code, 'context_length_exceeded'));
    await rejects(ask('fail'), OpenAI.InternalServerError,
      (e) => assert.match(e.message, /told to fail/));
    const stream = await client.chat.completions.create(ask('fail', { stream: true }));
    await assert.rejects(async () => { for await (const chunk of stream) void chunk; },
      /told to fail/);
    const plain = await fetch(`${url}/v1/chat/completions`, { method: 'POST', body: '{}' });
    assert.equal(plain.status, 415);
  },

  async 'a stream goes on after compute was killed'({ client, compute }) {
    const wanted = 'the answer goes on where it stopped, with nothing lost and nothing twice';
    const stream = await client.chat.completions.create(ask(`slow ${wanted}`, { stream: true }));
    let text = '';
    let killed = false;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? '';
      if (text.length >= 10 && !killed) {
        killed = true;
        compute.child.removeAllListeners('exit');
        compute.child.kill('SIGKILL');
        Object.assign(compute, await startCompute());
      }
    }
    assert.ok(killed);
    assert.equal(text, wanted);
  },

  async 'keys'() {
    const keys = join(dir, 'keys');
    writeFileSync(keys, 'me:secret-of-mine\n', { mode: 0o600 });
    const { child, found } = await startGateway(`api_key_file: "${keys}"`);
    const baseURL = `http://127.0.0.1:${found[1]}/v1`;
    const stranger = new OpenAI({ baseURL, apiKey: 'guess', maxRetries: 0 });
    await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
    const owner = new OpenAI({ baseURL, apiKey: 'secret-of-mine', maxRetries: 0 });
    assert.equal((await owner.models.list()).data.length, 2);
    child.removeAllListeners('exit');
    child.kill('SIGTERM');
  },
};

let failed = 0;
try {
  const compute = await startCompute();
  const gateway = await startGateway();
  const url = `http://127.0.0.1:${gateway.found[1]}`;
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 });
  const running = async () => {
    const text = await (await fetch(`${url}/metrics`)).text();
    return Number(text.match(/^strata:requests_running (\d+)/m)[1]);
  };
  await eventually('healthy', async () => (await fetch(`${url}/health`)).status === 200);
  for (const [name, test] of Object.entries(tests)) {
    try {
      await test({ client, url, running, compute });
      console.log(`ok      ${name}`);
    } catch (error) {
      ++failed;
      console.log(`FAILED  ${name}\n${error.stack}`);
    }
  }
} finally {
  for (const child of children) {
    child.removeAllListeners('exit');
    child.kill('SIGKILL');
  }
  rmSync(dir, { recursive: true, force: true });
}
console.log(failed ? `${failed} failed` : 'all passed');
process.exit(failed ? 1 : 0);
