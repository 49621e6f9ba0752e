// A compute daemon for tests without a model: writes a tiny GGUF whose tokens are bytes, and
// answers what the user's message asks for:
//   "say TEXT"    TEXT
//   "slow TEXT"   TEXT, a token every 20 ms
//   "hang"        nothing, for ever
//   "fail"        an error after one token
#include <algorithm>

#include "common/base/log.h"
#include "common/gguf/reader.h"
#include "common/gguf/writer.h"
#include "common/rpc/daemon.h"
#include "common/rpc/server.h"
#include "common/tokenizer/byte_alphabet.h"
#include "services/gateway/testing/fake_compute.h"
#include "services/gateway/testing/tiny_model.h"

namespace strata::gateway::testing {
namespace {

constexpr uint32_t kStart = 256;  // <|im_start|>
constexpr uint32_t kEnd = 257;    // <|im_end|>
constexpr int32_t kNormalToken = 1;
constexpr int32_t kControlToken = 3;

constexpr char kTemplate[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

absl::Status WriteModel(const std::string& path) {
  STRATA_ASSIGN_OR_RETURN(gguf::Writer writer, gguf::Writer::Create(path));
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(tokenizer::ByteToAlphabet(static_cast<uint8_t>(byte)));
    types.push_back(kNormalToken);
  }
  for (const char* control : {"<|im_start|>", "<|im_end|>"}) {
    tokens.emplace_back(control);
    types.push_back(kControlToken);
  }
  const uint64_t count = tokens.size();
  writer.Set("general.architecture", std::string("llama"));
  writer.Set("general.name", std::string("Fake Model"));
  writer.Set("tokenizer.ggml.model", std::string("gpt2"));
  writer.Set("tokenizer.ggml.pre", std::string("qwen2"));
  writer.Set("tokenizer.ggml.tokens", std::move(tokens));
  writer.Set("tokenizer.ggml.token_type", std::move(types));
  writer.Set("tokenizer.ggml.merges", std::vector<std::string>());
  writer.Set("tokenizer.ggml.eos_token_id", kEnd);
  writer.Set("tokenizer.chat_template", std::string(kTemplate));
  writer.DeclareTensor("token_embd.weight", TensorType::kF32, {4, count});
  const std::vector<std::byte> zeros(4 * sizeof(float) * count);
  STRATA_RETURN_IF_ERROR(writer.WriteTensor("token_embd.weight", zeros));
  return writer.Finish();
}

// The last user message of a rendered prompt.
std::string LastUserMessage(const v1::TokenIds& prompt) {
  std::string text;
  for (const uint32_t id : prompt.ids()) {
    if (id < 256) {
      text += static_cast<char>(id);
    } else {
      text += id == kStart ? "\x01" : "\x02";
    }
  }
  const std::string_view open = "\x01user\n";
  const size_t begin = text.rfind(open);
  if (begin == std::string::npos) return text;
  const size_t from = begin + open.size();
  return text.substr(from, text.find('\x02', from) - from);
}

FakeEngine::Script Answer(const v1::GenerateRequest& request) {
  const std::string message = LastUserMessage(request.prompt());
  const size_t space = message.find(' ');
  const std::string verb = message.substr(0, space);
  FakeEngine::Script script;
  if (space != std::string::npos) script.tokens = TinyModel::Bytes(message.substr(space + 1));
  if (verb == "slow") script.delay = std::chrono::milliseconds(20);
  if (verb == "hang") script.hangs = true;
  if (verb == "fail") {
    script.tokens = TinyModel::Bytes("x");
    script.failure = absl::InternalError("the fake was told to fail");
  }
  return script;
}

absl::Status Serve(const v1::Config& config) {
  STRATA_RETURN_IF_ERROR(WriteModel(config.model()));
  STRATA_ASSIGN_OR_RETURN(const auto model, gguf::Model::Open(config.model()));
  v1::DescribeResponse description;
  const auto hash = model->Fingerprint();
  description.mutable_fingerprint()->set_hash(hash.data(), hash.size());
  description.mutable_fingerprint()->set_name("Fake Model");
  description.set_context_length(2000);
  description.set_context_trained(2000);
  description.set_vocab_size(258);
  description.set_max_sequences(4);
  FakeCompute service(description, Answer);
  grpc::Service* services[] = {&service};
  STRATA_ASSIGN_OR_RETURN(const auto server,
                          rpc::Server::Start(config.compute().listen(), {}, services));
  server->SetServing(true);
  rpc::ServeUntilSignal("fake compute is ready");
  server->Shutdown(std::chrono::milliseconds(0));
  return absl::OkStatus();
}

}  // namespace
}  // namespace strata::gateway::testing

int main(int argc, char** argv) {
  return strata::rpc::DaemonMain(argc, argv, "fake compute: writes the model file and serves it",
                                 strata::gateway::testing::Serve);
}
