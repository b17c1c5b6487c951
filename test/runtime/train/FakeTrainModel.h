// A model of a few lines that behaves like a compiled one: its loss falls, and
// every weight depends on every token, hyperparameter and step before it, so
// any slip in resuming shows in the bits.
#pragma once
#include "runtime/data/TokenDataset.h"
#include "runtime/train/Hyper.h"
#include "runtime/train/TrainModel.h"
#include "test/runtime/data/TestData.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace tessera::testing {

/// weight[v] is pulled to 1 by every target v, with momentum beta1.
class FakeTrainModel : public TrainModel {
public:
  explicit FakeTrainModel(int64_t vocab = 32,
                          std::string config = R"({"n":1})") {
    info.programHash = "hash-of-" + config;
    info.compilerVersion = "test";
    info.rebuildCommand = "tessera compile MODEL --mode train";
    info.modelConfig = std::move(config);
    info.recipe = "optimizer: {name: adamw, lr: 0.5, betas: [0.5, 0.95]}\n"
                  "lr_schedule: {total: 12}\n"
                  "eval: {every: 5, batches: 2}\n"
                  "checkpoint: {every: 4, keep: 2}\n";
    info.microbatches = 2;
    info.rows = 3;
    info.sequence = 8;
    info.evalRows = 3;
    info.vocabSize = vocab;
    info.stepFlops = 1000;
    weight.resize(std::size_t(vocab));
    moment.resize(std::size_t(vocab));
    auto length = uint64_t(vocab);
    tensors = {{"model.weight",
                SafetensorsType::f32,
                {length},
                StateRole::parameter,
                4 * length},
               {"model.weight.exp_avg",
                SafetensorsType::f32,
                {length},
                StateRole::optimizer,
                4 * length},
               {"step", SafetensorsType::i64, {1}, StateRole::counter, 8},
               {"hyper",
                SafetensorsType::f32,
                {kHyperSlots},
                StateRole::counter,
                4 * kHyperSlots}};
    info.plannedBytes = 8 * length + 72;
  }

  const ModelFacts &facts() const override { return info; }
  const std::vector<StateTensor> &state() const override { return tensors; }
  Status readState(const StateTensor &tensor, uint64_t offset,
                   std::span<std::byte> out) override {
    std::memcpy(out.data(), place(tensor) + offset, out.size());
    return Status::success();
  }
  Status writeState(const StateTensor &tensor, uint64_t offset,
                    std::span<const std::byte> bytes) override {
    std::memcpy(place(tensor) + offset, bytes.data(), bytes.size());
    return Status::success();
  }
  std::span<std::byte> stateInMemory(const StateTensor &tensor) override {
    if (!inMemory)
      return {};
    return {place(tensor), std::size_t(tensor.size)};
  }
  Status initialize(int64_t seed) override {
    for (std::size_t i = 0; i < weight.size(); ++i) {
      weight[i] = float((uint64_t(seed) * 31 + i * 7) % 13) / 13;
      moment[i] = 0;
    }
    step = 0;
    return Status::success();
  }
  StatusOr<StepMetrics> trainStep(const TokenBatch &batch,
                                  int64_t seed) override {
    const std::span<const int32_t> tokens = batch.tokens,
                                   targets = batch.targets;
    float lr = hyper[std::size_t(HyperSlot::lr)];
    float beta = hyper[std::size_t(HyperSlot::beta1)];
    StepMetrics metrics;
    metrics.lr = lr;
    for (std::size_t i = 0; i < targets.size(); ++i) {
      float &w = weight[std::size_t(targets[i])];
      float &m = moment[std::size_t(targets[i])];
      float gradient = (w - 1) * (1 + 0.01f * float(tokens[i])) +
                       1e-3f * float((seed + step) % 5);
      m = beta * m + (1 - beta) * gradient;
      w -= lr / float(targets.size()) * m;
      metrics.loss += (w - 1) * (w - 1) / float(targets.size());
      metrics.gradNorm += std::abs(gradient);
    }
    metrics.tokens = int64_t(targets.size());
    ++step;
    if (step == nanAtStep)
      metrics.loss = std::numeric_limits<float>::quiet_NaN();
    return metrics;
  }
  bool canEvaluate() const override { return true; }
  StatusOr<EvalSum> evalStep(const TokenBatch &batch) override {
    const std::span<const int32_t> targets = batch.targets;
    EvalSum sum;
    sum.losses.assign(std::size_t(info.evalBatches), 0);
    for (std::size_t i = 0; i < targets.size(); ++i)
      if (targets[i] != ignoredTarget) {
        float error = weight[std::size_t(targets[i])] - 1;
        sum.losses[i * sum.losses.size() / targets.size()] += error * error;
        ++sum.tokens;
      }
    return sum;
  }
  int64_t contextLength() const override { return info.sequence; }
  /// After token t comes t + 1, with a runner-up t + 2; the logits of a
  /// position depend on that position's token alone.
  StatusOr<std::span<const float>>
  logits(std::span<const int32_t> tokens) override {
    ++logitsCalls;
    auto vocab = std::size_t(info.vocabSize);
    scores.assign(tokens.size() * vocab, 0);
    for (std::size_t at = 0; at < tokens.size(); ++at) {
      scores[at * vocab + (std::size_t(tokens[at]) + 1) % vocab] = 4;
      scores[at * vocab + (std::size_t(tokens[at]) + 2) % vocab] = 3;
    }
    return std::span<const float>(scores);
  }

  ModelFacts info;
  std::vector<StateTensor> tensors;
  std::vector<float> weight, moment, scores;
  int64_t step = 0;
  float hyper[kHyperSlots] = {};
  int64_t nanAtStep = -1;
  int logitsCalls = 0;
  bool inMemory = false; ///< as of a CPU, not of a GPU

private:
  std::byte *place(const StateTensor &tensor) {
    void *where = nullptr;
    if (tensor.name == "step")
      where = &step;
    else if (tensor.name == "hyper")
      where = hyper;
    else
      where =
          tensor.role == StateRole::parameter ? weight.data() : moment.data();
    return static_cast<std::byte *>(where);
  }
};

} // namespace tessera::testing
