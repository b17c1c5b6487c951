// A Llama of random weights that decodes, compiled here and now for the CPU:
// vocabulary 67, context 40, 9 pages of 8 tokens, chunks of 7, batches of 1 to
// 3.
#pragma once
#include "compiler/Driver.h"
#include "runtime/hal/Session.h"
#include "test/runtime/data/TestData.h"

#include <map>
#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace tessera::testing {

inline constexpr const char *kTinyDecoderConfig =
    R"({"architectures": ["LlamaForCausalLM"],
  "model_type": "llama", "vocab_size": 67, "hidden_size": 32,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 64, "intermediate_size": 48,
  "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
  "tie_word_embeddings": false})";

/// `kind`: fp32 or bf16, with _int8 behind it where keys and values are so.
inline void compileTinyDecoder(const std::string &path,
                               const std::string &kind) {
  CompileRequest request;
  request.spec = "config.json";
  request.configText = kTinyDecoderConfig;
  request.set = {"inference.context=40",
                 "inference.batch=3",
                 "inference.chunk=7",
                 "inference.page=8",
                 "inference.pages=9",
                 "batch.sequence=8",
                 "precision.compute=" + kind.substr(0, 4)};
  if (kind.ends_with("_int8"))
    request.set.push_back("inference.kv=int8");
  request.infer = true;
  request.executable = false;
  request.output = path;
  request.cache = "off";
  auto compiled = compile(request);
  ASSERT_TRUE(bool(compiled)) << llvm::toString(compiled.takeError());
}

/// With weights of one seed; nothing if that failed. Each kind is compiled
/// once.
inline std::unique_ptr<hal::Session> openTinyDecoder(const std::string &kind) {
  static ScratchDirectory scratch;
  static std::map<std::string, std::string> paths;
  std::string &path = paths[kind];
  if (path.empty())
    compileTinyDecoder(path = scratch / kind + ".tsr", kind);
  hal::SessionOptions options;
  options.deviceOptions.threads = 1;
  auto opened = hal::Session::open(path, options);
  EXPECT_TRUE(opened.ok()) << opened.message();
  if (!opened.ok())
    return nullptr;
  std::unique_ptr<hal::Session> session = opened.take();
  const int64_t seed[] = {5};
  EXPECT_TRUE(session->writeInput<int64_t>("init", "seed", seed).ok());
  EXPECT_TRUE(session->run("init").ok());
  return session;
}

} // namespace tessera::testing
