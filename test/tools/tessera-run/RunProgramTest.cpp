// Programs of the bigram artifact on tensors from files.
#include "tools/tessera-run/RunProgram.h"
#include "test/runtime/train/BigramArtifact.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {

constexpr int64_t V = kBigramVocab, T = kBigramSequence, A = 2, B = 4;

class TextSink : public SafetensorsSink {
public:
  Status write(std::span<const std::byte> bytes) override {
    text.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    return Status::success();
  }
  std::string text;
};

template <typename Element>
SafetensorsTensor fileTensor(const std::string &name, SafetensorsType type,
                             std::vector<uint64_t> shape,
                             std::vector<Element> values) {
  uint64_t size = values.size() * sizeof(Element);
  return {name, type, std::move(shape), size,
          [values = std::move(values)](SafetensorsSink &out) {
            return out.write(std::as_bytes(std::span(values)));
          }};
}

class RunProgram : public ::testing::Test {
protected:
  void SetUp() override {
    options.artifact = scratch / "bigram.tsr";
    std::ofstream(options.artifact, std::ios::binary) << bigramProgram();
    options.program = "logits";
    options.inputs = scratch / "in.safetensors";
    options.outputs = scratch / "out.safetensors";
    options.dumpState = scratch / "state.safetensors";
    options.threads = 1;
    write(options.inputs, {tokens({1, T})});
  }
  void write(const std::string &path, std::vector<SafetensorsTensor> tensors) {
    TextSink sink;
    ASSERT_TRUE(writeSafetensors(sink, std::move(tensors), {}).ok());
    std::ofstream(path, std::ios::binary) << sink.text;
  }
  /// Token i is (5 i + offset) % 256.
  SafetensorsTensor tokens(std::vector<uint64_t> shape, int32_t offset = 0,
                           const std::string &name = "tokens") {
    uint64_t count = 1;
    for (uint64_t extent : shape)
      count *= extent;
    std::vector<int32_t> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = (int32_t(i) * 5 + offset) % 256;
    return fileTensor(name, SafetensorsType::i32, std::move(shape),
                      std::move(values));
  }
  void writeBatches(uint64_t runs) {
    write(options.inputs,
          {tokens({runs, A, B, T}), tokens({runs, A, B, T}, 3, "targets"),
           fileTensor<int64_t>("seed", SafetensorsType::i64, {1}, {7})});
  }
  std::vector<float> read(const std::string &path, const std::string &name,
                          std::vector<uint64_t> shape) {
    auto file = SafetensorsFile::open(path);
    EXPECT_TRUE(file.ok()) << file.message();
    const SafetensorsEntry *entry =
        file.ok() ? file->header().find(name) : nullptr;
    if (!entry)
      return {};
    EXPECT_EQ(entry->type, SafetensorsType::f32) << name;
    EXPECT_EQ(entry->shape, shape) << name;
    std::vector<float> values((entry->end - entry->begin) / sizeof(float));
    EXPECT_TRUE(
        file->read(*entry, 0, std::as_writable_bytes(std::span(values))).ok());
    return values;
  }
  std::string error() {
    Status status = runProgram(options);
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(fs::exists(options.outputs));
    EXPECT_FALSE(fs::exists(options.dumpState));
    return status.message();
  }
  void expectError(const std::string &part) {
    std::string text = error();
    EXPECT_NE(text.find(part), text.npos) << text;
    EXPECT_EQ(text.find('\n'), text.npos) << text;
  }

  ScratchDirectory scratch;
  RunProgramOptions options;
};

} // namespace

TEST_F(RunProgram, ReadsItsStateFromAFileAndWritesOutputs) {
  std::vector<float> table(V * V);
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] = float(i % 97) / 16;
  options.states = {scratch / "table.safetensors"};
  write(options.states[0], {fileTensor("transformer.table.weight",
                                       SafetensorsType::f32, {V, V}, table)});
  Status status = runProgram(options);
  ASSERT_TRUE(status.ok()) << status.message();
  std::vector<float> logits = read(options.outputs, "logits", {1, T, V});
  ASSERT_EQ(logits.size(), std::size_t(T * V));
  for (int64_t t = 0; t < T; ++t)
    for (int64_t v = 0; v < V; ++v)
      ASSERT_EQ(logits[t * V + v], table[(5 * t) % 256 * V + v])
          << t << " " << v;
  EXPECT_EQ(read(options.dumpState, "transformer.table.weight", {V, V}), table);
}

TEST_F(RunProgram, EvaluatesWithoutTheTrainingStep) {
  options.program = "eval_step";
  options.checkFinite = true;
  write(options.inputs,
        {tokens({B, T}), tokens({B, T}, /*offset=*/5, "targets")});
  Status status = runProgram(options);
  ASSERT_TRUE(status.ok()) << status.message();
  // A zero table: every token costs ln V.
  std::vector<float> loss = read(options.outputs, "loss_sum", {});
  ASSERT_EQ(loss.size(), 1u);
  EXPECT_NEAR(loss[0] / float(B * T), std::log(float(V)), 1e-4);
}

TEST_F(RunProgram, RunsFollowOneAnotherThroughTheState) {
  options.program = "train_step";
  options.init = 3;
  options.runs = 3;
  writeBatches(3);
  Status status = runProgram(options);
  ASSERT_TRUE(status.ok()) << status.message();
  std::vector<float> losses = read(options.outputs, "loss", {3});
  std::vector<float> table =
      read(options.dumpState, "transformer.table.weight", {V, V});
  ASSERT_EQ(losses.size(), 3u);

  // The same one by one, the state going through a file.
  options.runs = 1;
  for (int run = 0; run < 3; ++run) {
    write(
        options.inputs,
        {tokens({A, B, T}, 5 * int32_t(A * B * T) * run % 256),
         tokens({A, B, T}, (3 + 5 * int32_t(A * B * T) * run) % 256, "targets"),
         fileTensor<int64_t>("seed", SafetensorsType::i64, {1}, {7})});
    if (run)
      options.init.reset(), options.states = {options.dumpState};
    status = runProgram(options);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(read(options.outputs, "loss", {}).at(0), losses[run]) << run;
  }
  EXPECT_EQ(read(options.dumpState, "transformer.table.weight", {V, V}), table);
}

TEST_F(RunProgram, AnInputWithoutSeriesIsTheSameInEveryRun) {
  options.runs = 2;
  options.init = 1;
  ASSERT_TRUE(runProgram(options).ok());
  std::vector<float> logits = read(options.outputs, "logits", {2, 1, T, V});
  ASSERT_EQ(logits.size(), std::size_t(2 * T * V));
  EXPECT_TRUE(std::equal(logits.begin(), logits.begin() + T * V,
                         logits.begin() + T * V));
}

TEST_F(RunProgram, HyperparametersComeFromTheRecipeAndSet) {
  ASSERT_TRUE(runProgram(options).ok());
  EXPECT_EQ(read(options.dumpState, "hyper", {kHyperSlots})[0], 20.0f);
  options.sets = {"optimizer.lr=0.5", "optimizer.weight_decay=0.25"};
  Status status = runProgram(options);
  ASSERT_TRUE(status.ok()) << status.message();
  std::vector<float> hyper = read(options.dumpState, "hyper", {kHyperSlots});
  EXPECT_EQ(hyper[std::size_t(HyperSlot::lr)], 0.5f);
  EXPECT_EQ(hyper[std::size_t(HyperSlot::weightDecay)], 0.25f);
}

TEST_F(RunProgram, LoadsWeightsByHuggingFaceNames) {
  options.weights = scratch / "weights.safetensors";
  std::vector<double> table(V * V, 0.25);
  write(options.weights,
        {fileTensor("table.weight", SafetensorsType::f64, {V, V}, table)});
  Status status = runProgram(options);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(read(options.outputs, "logits", {1, T, V}).at(5), 0.25f);
}

TEST_F(RunProgram, RefusesWhatDoesNotFitTheProgram) {
  std::string inputs = options.inputs;
  options.inputs = "";
  expectError("program 'logits' needs --inputs FILE with 'tokens'");
  options.inputs = scratch / "absent.safetensors";
  expectError("absent.safetensors");
  options.inputs = inputs;
  write(inputs, {tokens({1, T}, 0, "token")});
  expectError("lacks the input 'tokens' of program 'logits': I32[1, 16]");
  write(inputs, {tokens({1, T}), tokens({1, T}, 0, "targets")});
  expectError("'targets' in '" + inputs +
              "' is not an input of program 'logits'");
  write(inputs, {tokens({2, T})});
  expectError("is I32[2, 16], but the input of program 'logits' is I32[1, 16]");
  write(inputs, {fileTensor<int64_t>("tokens", SafetensorsType::i64, {1, T},
                                     std::vector<int64_t>(T))});
  expectError("is I64[1, 16], but the input of program 'logits' is I32[1, 16]");
  // A series must have one value a run.
  options.runs = 3;
  write(inputs, {tokens({2, 1, T})});
  expectError("is I32[2, 1, 16]");
}

TEST_F(RunProgram, RefusesWhatDoesNotFitTheState) {
  options.states = {scratch / "state-in.safetensors"};
  write(options.states[0],
        {fileTensor<float>("table.weight", SafetensorsType::f32, {1}, {0})});
  expectError("'table.weight' in '" + options.states[0] +
              "' is not a tensor of the state");
  write(options.states[0],
        {fileTensor<float>("step", SafetensorsType::f32, {1}, {0})});
  expectError("is F32[1], but the state's is I64[1]");
  options.states.clear();
  options.checkpoint = scratch / "no-checkpoint";
  expectError("no-checkpoint");
  options.checkpoint.clear();
  options.sets = {"optimizer.lrr=1"};
  expectError("optimizer.lr");
}

TEST_F(RunProgram, RefusesUnknownProgramsAndHugeOutputs) {
  options.program = "logit";
  expectError("logit");
  options.program = "logits";
  options.runs = uint64_t(1) << 32;
  expectError("lower --runs");
}

TEST_F(RunProgram, AnUnwritablePathIsAnError) {
  options.outputs = scratch / "absent/out.safetensors";
  expectError("absent/out.safetensors");
}

TEST_F(RunProgram, CommandLine) {
  const char *training[] = {"tessera-run", "--steps", "3"};
  EXPECT_FALSE(asksForProgram(3, training));
  const char *program[] = {"tessera-run", "--program=logits"};
  EXPECT_TRUE(asksForProgram(2, program));

  auto run = [&](std::vector<const char *> argv) {
    argv.insert(argv.begin(), "tessera-run");
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    int code = runProgramMain(int(argv.size()), argv.data(), options.artifact);
    ::testing::internal::GetCapturedStdout();
    std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(code != 0, !text.empty()) << text;
    return code;
  };
  EXPECT_EQ(run({"--program", "logits", "--inputs", options.inputs.c_str(),
                 "--outputs", options.outputs.c_str()}),
            0);
  EXPECT_TRUE(fs::exists(options.outputs));
  EXPECT_EQ(run({"--program", "logits"}), 1);
  EXPECT_EQ(run({"--program", "logits", "--steps", "1"}), 2);
  EXPECT_EQ(run({"--program", "logits", "--runs", "0"}), 2);
  EXPECT_EQ(run({"--help"}), 0);
}
