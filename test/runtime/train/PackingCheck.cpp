// Whether documents have the same losses and gradients in packed rows as alone:
//
//   packing-check PACKED ALONE DOCUMENTS
//
// Two step programs of one model and recipe, whose rows have equal lengths.
// DOCUMENTS documents of random lengths are packed in rows of PACKED and have
// rows of their own in ALONE. Prints, of documents learned one at a time among
// others that are not: how many there were, losses with other bits, and
// documents with other bits in a weight or moment after the step; of steps that
// learn from all documents of a batch: their number, those with other bits, and
// the largest relative difference of a moment.
#include "runtime/data/PackedDataset.h"
#include "runtime/train/RunRecipe.h"
#include "runtime/train/SessionModel.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

using namespace tessera;

namespace {

struct Document {
  std::vector<int32_t> tokens;
  std::size_t row, begin; ///< in the packed batch
};

struct Outcome {
  double loss;
  std::vector<std::vector<std::byte>> state;
};

/// Begins documents after `begin` of each row, up to its end.
void putRest(std::span<int32_t> starts, std::size_t begin) {
  for (std::size_t t = begin; t < starts.size(); ++t)
    starts[t] = int32_t(begin);
}

void put(const Document &document, std::size_t row, std::size_t begin,
         std::size_t length, bool isLearned, TokenBuffers &batch) {
  const std::size_t first = row * length + begin;
  for (std::size_t i = 0; i < document.tokens.size(); ++i) {
    batch.tokens[first + i] = document.tokens[i];
    batch.documentStarts[first + i] = int32_t(begin);
    if (isLearned && i + 1 < document.tokens.size())
      batch.targets[first + i] = document.tokens[i + 1];
  }
  putRest(std::span(batch.documentStarts).subspan(row * length, length),
          begin + document.tokens.size());
}

class Check {
public:
  Check(TrainModel &packed, TrainModel &alone)
      : packed(packed), alone(alone),
        length(std::size_t(packed.facts().sequence)) {}

  Status run(std::size_t documents) {
    while (count < documents)
      TESSERA_RETURN_IF_ERROR(runBatch());
    return Status::success();
  }

  std::size_t count = 0, losses = 0, states = 0, batches = 0, otherBatches = 0;
  double largest = 0;

private:
  /// As many as fit the rows of both.
  std::vector<Document> drawBatch() {
    std::uniform_int_distribution<int32_t> token(
        0, int32_t(packed.facts().vocabSize) - 1);
    std::uniform_int_distribution<std::size_t> size(2, length / 2);
    std::vector<Document> documents;
    std::size_t row = 0, begin = 0;
    while (documents.size() < std::size_t(alone.facts().rows)) {
      std::vector<int32_t> tokens(size(random));
      for (int32_t &each : tokens)
        each = token(random);
      if (begin + tokens.size() > length)
        ++row, begin = 0;
      if (row == std::size_t(packed.facts().rows))
        break;
      documents.push_back({tokens, row, begin});
      begin += tokens.size();
    }
    return documents;
  }

  Status runBatch() {
    const std::vector<Document> documents = drawBatch();
    Outcome one, other;
    for (std::size_t i = 0; i < documents.size(); ++i, ++count) {
      TESSERA_RETURN_IF_ERROR(stepBoth(documents, i, one, other));
      losses += std::memcmp(&one.loss, &other.loss, sizeof(double)) != 0;
      states += one.state != other.state;
    }
    TESSERA_RETURN_IF_ERROR(stepBoth(documents, {}, one, other));
    ++batches;
    otherBatches += one.loss != other.loss || one.state != other.state;
    for (std::size_t i = 0; i < one.state.size(); ++i)
      compare(one.state[i], other.state[i]);
    return Status::success();
  }

  /// Of tensors of floats, relative to the tensor's largest.
  void compare(std::span<const std::byte> one,
               std::span<const std::byte> other) {
    double difference = 0, most = 0;
    for (std::size_t at = 0; at + sizeof(float) <= one.size();
         at += sizeof(float)) {
      float x, y;
      std::memcpy(&x, one.data() + at, sizeof(float));
      std::memcpy(&y, other.data() + at, sizeof(float));
      difference = std::max(difference, std::abs(double(x) - y));
      most = std::max(most, std::abs(double(x)));
    }
    if (most > 0)
      largest = std::max(largest, difference / most);
  }

  Status stepBoth(const std::vector<Document> &documents,
                  std::optional<std::size_t> learned, Outcome &one,
                  Outcome &other) {
    TESSERA_RETURN_IF_ERROR(step(packed, documents, learned, true, one));
    return step(alone, documents, learned, false, other);
  }

  Status step(TrainModel &model, const std::vector<Document> &documents,
              std::optional<std::size_t> learned, bool packs,
              Outcome &outcome) {
    TESSERA_RETURN_IF_ERROR(model.initialize(7));
    TESSERA_RETURN_IF_ERROR(writeHyper(model));
    TokenBuffers batch(std::size_t(model.facts().rows) * length,
                       model.facts().documents);
    std::ranges::fill(batch.targets, ignoredTarget);
    for (std::size_t i = 0; i < documents.size(); ++i)
      put(documents[i], packs ? documents[i].row : i,
          packs ? documents[i].begin : 0, length, !learned || *learned == i,
          batch);
    StatusOr<StepMetrics> metrics = model.trainStep(batch.view(), 7);
    if (!metrics.ok())
      return metrics.status();
    outcome.loss = metrics->loss;
    outcome.state.clear();
    for (const StateTensor &tensor : model.state()) {
      if (tensor.type != SafetensorsType::f32)
        continue;
      outcome.state.emplace_back(tensor.size);
      TESSERA_RETURN_IF_ERROR(model.readState(tensor, 0, outcome.state.back()));
    }
    return Status::success();
  }

  static Status writeHyper(TrainModel &model) {
    StatusOr<RunRecipe> recipe = parseRunRecipe(model.facts().recipe);
    if (!recipe.ok())
      return recipe.status();
    const std::array<float, kHyperSlots> hyper = recipe->hyper();
    const StateTensor *tensor = model.find(kHyperTensor);
    if (!tensor)
      return Status::error("no state tensor '{}'", kHyperTensor);
    return model.writeState(*tensor, 0, std::as_bytes(std::span(hyper)));
  }

  TrainModel &packed, &alone;
  std::size_t length;
  std::mt19937_64 random{5};
};

StatusOr<std::unique_ptr<SessionModel>> openModel(const std::string &path) {
  StatusOr<ArtifactReader> reader = ArtifactReader::open(path);
  if (!reader.ok())
    return reader.status();
  hal::SessionOptions options;
  options.device = "cpu";
  options.programs = {"init", "train_step"};
  return SessionModel::open(*reader, options);
}

Status run(const std::string &packedPath, const std::string &alonePath,
           std::size_t documents) {
  auto packed = openModel(packedPath), alone = openModel(alonePath);
  for (const Status &status : {packed.status(), alone.status()})
    if (!status.ok())
      return status;
  for (TrainModel *model : {packed->get(), alone->get()})
    if (model->facts().sequence != (*packed)->facts().sequence ||
        model->facts().microbatches != 1 || !model->facts().documents.starts)
      return Status::error("programs need rows of one length, one microbatch "
                           "and data.documents=separate");
  Check check(**packed, **alone);
  TESSERA_RETURN_IF_ERROR(check.run(documents));
  fmt::print("{} {} {} {} {} {:.3g}\n", check.count, check.losses, check.states,
             check.batches, check.otherBatches, check.largest);
  return Status::success();
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: packing-check PACKED ALONE DOCUMENTS\n");
    return 2;
  }
  const Status status =
      run(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10));
  if (!status.ok())
    fmt::print(stderr, "error: {}\n", status.message());
  return status.ok() ? 0 : 1;
}
