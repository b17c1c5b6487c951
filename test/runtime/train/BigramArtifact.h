// The artifact around BigramKernels.cpp, and text for it to learn.
#pragma once
#include "runtime/data/tokenizer/BpeTrainer.h"
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/train/Hyper.h"
#include "test/runtime/artifact/TestArtifact.h"
#include "test/runtime/train/FakeTrainModel.h"

#include <fstream>
#include <iterator>

namespace tessera::testing {

inline constexpr int64_t kBigramVocab = 257, kBigramSequence = 16;

inline std::string fileBytes(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// An input that the kernels do not read.
struct UnreadInput {
  const char *name;
  artifact::ElementType type;
  std::vector<int64_t> shape;
};

/// A .tsr file's bytes. Batches are [2, 4, 16]; `configNote` goes into the
/// config, for making another model of it. train_step has the inputs `more`.
inline std::string bigramProgram(const std::string &configNote = "bigram",
                                 const std::vector<UnreadInput> &more = {}) {
  using namespace tessera::test;
  constexpr int64_t V = kBigramVocab, T = kBigramSequence, A = 2, B = 4;
  constexpr uint64_t tableBytes = V * V * 4;
  constexpr uint64_t stepAt = (tableBytes + 63) / 64 * 64;
  constexpr uint64_t hyperAt = stepAt + 64;
  const ArgT table = arg(Space::state, 0, tableBytes);
  const ArgT step = arg(Space::state, stepAt, 8);
  const ArgT hyper = arg(Space::state, hyperAt, 64);
  auto io = [](uint64_t offset, uint64_t bytes) {
    return arg(Space::io, offset, bytes);
  };
  auto input = [](const char *name, ElementType type,
                  std::vector<int64_t> shape, uint64_t offset) {
    return tensor(name, type, std::move(shape), Role::input, Space::io, offset);
  };
  auto metric = [](const char *name, ElementType type, uint64_t offset) {
    return tensor(name, type, {}, Role::metric, Space::io, offset);
  };

  ArtifactT artifact = emptyArtifact();
  artifact.program_hash = "bigram-" + configNote;
  artifact.model_config =
      "{\"vocab_size\": 257, \"note\": \"" + configNote + "\"}";
  artifact.recipe = "optimizer: {name: sgd, lr: 20}\n"
                    "lr_schedule: {name: constant, total: 60}\n"
                    "batch: {micro: 4, accumulate: 2, sequence: 16}\n"
                    "eval: {every: 20, batches: 2}\n"
                    "checkpoint: {every: 20, keep: 2}\n";
  share(artifact).state_bytes = hyperAt + 64;
  share(artifact).state = owned<TensorT>(
      {tensor("transformer.table.weight", ElementType::f32, {V, V},
              Role::parameter, Space::state, 0),
       tensor("step", ElementType::i64, {1}, Role::counter, Space::state,
              stepAt),
       tensor(kHyperTensor, ElementType::f32, {int64_t(kHyperSlots)},
              Role::counter, Space::state, hyperAt)});
  using enum Access;
  cpu(artifact).kernels = owned<KernelT>(
      {kernel("bigram_init", {read, write, write}),
       kernel("bigram_train",
              {read, read, read, read_write, read_write, write, write, write,
               write},
              1, tableBytes + 4 * V),
       kernel("bigram_eval", {read, read, read, write, write}, 1, 4 * V),
       kernel("bigram_logits", {read, read, write})});
  cpu(artifact).code = owned<CodeObjectT>(
      {codeObject("cpu:test", {}, fileBytes(BIGRAM_KERNELS))});

  constexpr uint64_t trainBytes = A * B * T * 4, evalBytes = B * T * 4;
  std::vector<ProgramT> programs;
  programs.push_back(
      program("init", 0, 64, {input("seed", ElementType::i64, {1}, 0)}, {},
              {launch(0, {instance({io(0, 8), table, step}, 1)}, "init")}));
  constexpr uint64_t out = 2 * trainBytes;
  programs.push_back(program(
      "train_step", 0, out + 5 * 64,
      {input("tokens", ElementType::i32, {A, B, T}, 0),
       input("targets", ElementType::i32, {A, B, T}, trainBytes),
       input("seed", ElementType::i64, {1}, out)},
      {metric("loss", ElementType::f32, out + 64),
       metric("grad_norm", ElementType::f32, out + 128),
       metric("lr", ElementType::f32, out + 192),
       metric("tokens", ElementType::i64, out + 256)},
      {launch(1,
              {instance({io(0, trainBytes), io(trainBytes, trainBytes), hyper,
                         table, step, io(out + 64, 4), io(out + 128, 4),
                         io(out + 192, 4), io(out + 256, 8)},
                        1, {A * B * T})},
              "step")}));
  for (const UnreadInput &each : more) {
    ProgramT &train = programs.back();
    train.inputs.push_back(std::make_unique<TensorT>(
        input(each.name, each.type, each.shape, train.io_bytes)));
    train.io_bytes += (train.inputs.back()->bytes + 63) / 64 * 64;
  }
  programs.back().model_flops = uint64_t(4 * V * A * B * T);
  constexpr uint64_t sum = 2 * evalBytes;
  programs.push_back(
      program("eval_step", 0, sum + 128,
              {input("tokens", ElementType::i32, {B, T}, 0),
               input("targets", ElementType::i32, {B, T}, evalBytes)},
              {metric("loss_sum", ElementType::f32, sum),
               metric("tokens", ElementType::i64, sum + 64)},
              {launch(2,
                      {instance({io(0, evalBytes), io(evalBytes, evalBytes),
                                 table, io(sum, 4), io(sum + 64, 8)},
                                1, {B * T})},
                      "eval")}));
  programs.push_back(program(
      "logits", 0, 64 + T * V * 4,
      {input("tokens", ElementType::i32, {1, T}, 0)},
      {tensor("logits", ElementType::f32, {1, T, V}, Role::output, Space::io,
              64)},
      {launch(3,
              {instance({io(0, T * 4), table, io(64, T * V * 4)}, uint64_t(T))},
              "logits")}));
  cpu(artifact).programs = owned<ProgramT>(std::move(programs));
  return appendedBytes(0, pack(artifact));
}

/// tokenizer.json of the 256 bytes and <|endoftext|>, which has id 0.
inline std::string byteTokenizer() {
  tokenizer::TrainOptions options;
  options.vocabSize = uint32_t(kBigramVocab);
  auto trained = tokenizer::trainBpe(tokenizer::WordTable(), options);
  assert(trained.ok());
  return tokenizer::tokenizerJson(*trained);
}

/// Writes a token directory with tokenizer.json, train/ and eval/ of `text`.
inline void writeTextTokens(const std::string &folder,
                            const std::string &text) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/tokenizer.json") << byteTokenizer();
  auto tokenizer = tokenizer::Tokenizer::load(folder + "/tokenizer.json");
  assert(tokenizer.ok());
  std::vector<uint32_t> tokens = tokenizer::Encoder(*tokenizer).encode(text);
  tokens.push_back(*tokenizer->documentEnd());
  for (const char *name : {"/train", "/eval"}) {
    std::filesystem::create_directories(folder + name);
    uint64_t hash = tokenizer->hash();
    auto vocab = uint64_t(kBigramVocab);
    Status shard = writeTokenShard(folder + name, "shard-00000.tok",
                                   {tokens, 1, vocab, hash});
    assert(shard.ok());
    SplitIndex index;
    index.vocabSize = vocab;
    index.tokenizerHash = hash;
    index.tokens = tokens.size();
    index.documents = 1;
    index.unigramEntropy = 2.5;
    index.separator = *tokenizer->documentEnd();
    index.shards = {{"shard-00000.tok", tokens.size(), 1}};
    Status written = writeSplitIndex(index, folder + name);
    assert(written.ok());
    (void)shard, (void)written;
  }
}

} // namespace tessera::testing
