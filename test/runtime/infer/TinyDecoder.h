// A Llama of random weights, or a mixture of experts of such whose matrices may
// be integers, that decodes, or a BERT that embeds, compiled here and now for
// the CPU or the emulated GPU: vocabulary 67, context 40, 9 pages of 8 tokens,
// chunks of 7, batches of 1 to 3.
#pragma once
#include "compiler/Driver.h"
#include "compiler/api/LocalTargets.h"
#include "runtime/hal/Session.h"
#include "test/runtime/data/TestData.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tessera::testing {

inline constexpr const char *kTinyDecoderConfig =
    R"({"architectures": ["LlamaForCausalLM"],
  "model_type": "llama", "vocab_size": 67, "hidden_size": 32,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 64, "intermediate_size": 48,
  "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
  "tie_word_embeddings": false})";

inline constexpr const char *kTinyExpertsConfig =
    R"({"architectures": ["MixtralForCausalLM"],
  "model_type": "mixtral", "vocab_size": 67, "hidden_size": 32,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 64, "intermediate_size": 48,
  "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": null,
  "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
  "tie_word_embeddings": false})";

/// Experts that are beside one that all tokens have.
inline constexpr const char *kTinySharedConfig =
    R"({"architectures": ["Qwen2MoeForCausalLM"],
  "model_type": "qwen2_moe", "vocab_size": 67, "hidden_size": 32,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 64, "intermediate_size": 48,
  "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40,
  "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": false,
  "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
  "tie_word_embeddings": false})";

inline constexpr const char *kTinyEncoderConfig =
    R"({"architectures": ["BertModel"], "model_type": "bert",
  "vocab_size": 67, "hidden_size": 48, "intermediate_size": 80,
  "num_hidden_layers": 2, "num_attention_heads": 3, "type_vocab_size": 2,
  "max_position_embeddings": 64, "layer_norm_eps": 1e-12})";

/// `kind` is the precision of compute. "_int8" or "_int4" after it: of experts
/// that are quantized so; "_experts" or "_shared": of experts as they are;
/// "_encoder": of a BERT; "_kv": with keys and values of int8; "_lora": with
/// three adapters; "_prompts": whose tokens see each other, in chunks of 24.
/// Compiled for this processor, and with "@sm_80" at the end
/// for the emulated GPU, with "@cpu" for all processors; "#hardware" after
/// that: as hardware computes.
inline void compileTinyDecoder(const std::string &path,
                               const std::string &kind) {
  CompileRequest request;
  request.spec = "config.json";
  std::string model = kind.substr(0, kind.find('@'));
  size_t end = model.find('_');
  std::string precision = model.substr(0, end),
              what = end == std::string::npos ? "" : model.substr(end + 1);
  bool quantizes = what.starts_with("int");
  std::string target = model == kind ? "" : kind.substr(model.size() + 1);
  if (target.empty()) {
    request.targets = localTargets("cpu");
  } else if (target != "cpu") {
    request.targets = {"cuda:" + target};
    setenv("CUDACXX", "", 1); // no code for a GPU that is not here
  }
  request.configText = quantizes || what == "experts" ? kTinyExpertsConfig
                       : what == "shared"             ? kTinySharedConfig
                       : what == "encoder"            ? kTinyEncoderConfig
                                                      : kTinyDecoderConfig;
  request.set = {"inference.context=40",
                 "inference.batch=3",
                 "inference.chunk=7",
                 "inference.page=8",
                 "inference.pages=9",
                 "batch.sequence=8",
                 "precision.compute=" + precision,
                 "inference.quant=" + (quantizes ? what : "none"),
                 std::string("inference.kv=") +
                     (what == "kv" ? "int8" : "auto")};
  if (what == "lora")
    request.set.insert(request.set.end(),
                       {"adapter.kind=lora", "adapter.slots=3",
                        "adapter.rank=5", "adapter.target=[all]"});
  if (what == "prompts")
    request.set.insert(request.set.end(), {"attention.prompts=bidirectional",
                                           "inference.chunk=24"});
  request.infer = true;
  request.executable = false;
  request.output = path;
  // lit's, for all kinds and shards; not that of a user who runs this by hand.
  request.cache = std::getenv("TESSERA_TEST_CACHE") ? "on" : "off";
  auto compiled = compile(request);
  ASSERT_TRUE(bool(compiled)) << llvm::toString(compiled.takeError());
}

/// Integers, which have no initializer.
inline void drawQuantized(hal::Session &session) {
  uint32_t state = 1;
  for (const hal::TensorInfo &tensor : session.state()) {
    const artifact::Quantized *quantized = tensor.source->quantized();
    if (!quantized)
      continue;
    bool isScales = quantized->part() == artifact::QuantizedPart::scales;
    // About 0.02 × the largest integer, and a little apart, as f16.
    uint32_t scale = quantized->bits() == 8 ? 0x0900 : 0x1900;
    std::vector<uint16_t> words(tensor.bytes / sizeof(uint16_t));
    for (uint16_t &word : words) {
      state = state * 1664525 + 1013904223;
      word = isScales ? uint16_t(scale + (state >> 23)) : uint16_t(state >> 16);
    }
    EXPECT_TRUE(
        session.writeState(tensor.name, std::as_bytes(std::span(words)), 0)
            .ok());
  }
}

/// Factors of adapters, which begin as zeros.
inline void drawAdapters(hal::Session &session) {
  uint32_t state = 1;
  for (const hal::TensorInfo &tensor : session.state()) {
    if (tensor.name.find(".lora_") == std::string_view::npos)
      continue;
    const bool isF32 = tensor.type == artifact::ElementType::f32;
    std::vector<uint16_t> words(tensor.bytes / sizeof(uint16_t));
    for (size_t i = 0; i < words.size(); ++i) {
      state = state * 1664525 + 1013904223;
      // The high half of an f32, or a bf16: about 0.25 with either sign.
      if (!isF32 || i % 2 == 1)
        words[i] =
            uint16_t(0x3E00 + (state >> 24) + (state >> 23 & 1) * 0x8000);
    }
    EXPECT_TRUE(
        session.writeState(tensor.name, std::as_bytes(std::span(words)), 0)
            .ok());
  }
}

/// With weights of one seed; nothing if that failed. Each kind is compiled
/// once.
inline std::unique_ptr<hal::Session> openTinyDecoder(const std::string &kind) {
  static ScratchDirectory scratch;
  static std::map<std::string, std::string> paths;
  const size_t end = kind.find('#');
  const std::string model = kind.substr(0, end);
  std::string &path = paths[model];
  if (path.empty())
    compileTinyDecoder(path = scratch / model + ".tsr", model);
  hal::SessionOptions options;
  options.deviceOptions.threads = 1;
  if (size_t at = model.find("@sm"); at != std::string::npos)
    options.device = "cuda-emu:" + model.substr(at + 1);
  if (end != std::string::npos)
    options.deviceOptions.emulatorNumerics = kind.substr(end + 1);
  auto opened = hal::Session::open(path, options);
  EXPECT_TRUE(opened.ok()) << opened.message();
  if (!opened.ok())
    return nullptr;
  std::unique_ptr<hal::Session> session = opened.take();
  const int64_t seed[] = {5};
  EXPECT_TRUE(session->writeInput<int64_t>("init", "seed", seed).ok());
  EXPECT_TRUE(session->run("init").ok());
  drawQuantized(*session);
  drawAdapters(*session);
  return session;
}

/// The same, and what runs its programs: a Decoder, DecodePrograms, or
/// EmbedPrograms with its vocabulary.
template <typename Programs, typename... Facts>
void openTiny(const std::string &kind, std::unique_ptr<hal::Session> &session,
              std::unique_ptr<Programs> &programs, Facts... facts) {
  session = openTinyDecoder(kind);
  ASSERT_TRUE(session);
  auto made = Programs::create(*session, facts...);
  ASSERT_TRUE(made.ok()) << made.message();
  programs = made.take();
}

/// Tokens that repeat no pattern.
inline std::vector<int32_t> tinyText(int count, int seed) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back((i * 31 + seed * 17 + i * i) % 67);
  return tokens;
}

} // namespace tessera::testing
