// Training steps of documents that are packed in rows, or have rows of their
// own, on one rank or on those of mpirun:
//
//   packing-check PROGRAM packed|alone ROWS MOST DOCUMENTS STATES [DEVICE]
//
// Batches have MOST documents of random lengths, or as many as fit in ROWS rows
// of the program's length. Each document is learned by itself, among the others
// of its batch that are not, with a line "one LOSS HASH"; then all of the batch
// together, with a line "all LOSS HASH". LOSS is a hexadecimal number, HASH
// that of weights and moments after the step, which are appended to the file
// STATES for steps of all.
#include "runtime/data/PackedDataset.h"
#include "runtime/support/Hash.h"
#include "runtime/train/MeshModel.h"
#include "runtime/train/RunRecipe.h"

#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>

using namespace tessera;

namespace {

struct Document {
  std::vector<int32_t> tokens;
  std::size_t row, begin; ///< in the packed batch
};

struct Question {
  bool packs;
  std::size_t rows, most, documents;
  std::string states;
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
  /// `prints`: on rank 0 alone, which has whole tensors.
  Check(TrainModel &model, Question question, bool prints)
      : model(model), question(std::move(question)), prints(prints),
        length(std::size_t(model.facts().sequence)) {}

  Status run() {
    if (prints)
      states.open(question.states, std::ios::binary);
    for (std::size_t count = 0; count < question.documents;) {
      const std::vector<Document> documents = drawBatch();
      for (std::size_t i = 0; i < documents.size(); ++i, ++count)
        TESSERA_RETURN_IF_ERROR(step(documents, i));
      TESSERA_RETURN_IF_ERROR(step(documents, {}));
    }
    return states.fail() ? Status::error("cannot write {}", question.states)
                         : Status::success();
  }

private:
  std::vector<Document> drawBatch() {
    std::uniform_int_distribution<int32_t> token(
        0, int32_t(model.facts().vocabSize) - 1);
    std::uniform_int_distribution<std::size_t> size(2, length / 2);
    std::vector<Document> documents;
    std::size_t row = 0, begin = 0;
    while (documents.size() < question.most) {
      std::vector<int32_t> tokens(size(random));
      for (int32_t &each : tokens)
        each = token(random);
      if (begin + tokens.size() > length)
        ++row, begin = 0;
      if (row == question.rows)
        break;
      documents.push_back({tokens, row, begin});
      begin += tokens.size();
    }
    return documents;
  }

  Status step(const std::vector<Document> &documents,
              std::optional<std::size_t> learned) {
    TESSERA_RETURN_IF_ERROR(model.initialize(7));
    TESSERA_RETURN_IF_ERROR(writeHyper(model));
    TokenBuffers batch(
        std::size_t(model.facts().microbatches * model.facts().rows) * length,
        model.facts().documents);
    std::ranges::fill(batch.targets, ignoredTarget);
    for (std::size_t i = 0; i < documents.size(); ++i)
      put(documents[i], question.packs ? documents[i].row : i,
          question.packs ? documents[i].begin : 0, length,
          !learned || *learned == i, batch);
    StatusOr<StepMetrics> metrics = model.trainStep(batch.view(), 7);
    if (!metrics.ok())
      return metrics.status();
    return tell(learned ? "one" : "all", metrics->loss, !learned);
  }

  /// Weights and moments.
  Status tell(std::string_view kind, double loss, bool keeps) {
    Hasher64 hash;
    std::vector<std::byte> bytes;
    for (const StateTensor &tensor : model.state()) {
      if (tensor.type != SafetensorsType::f32)
        continue;
      bytes.resize(tensor.size);
      TESSERA_RETURN_IF_ERROR(model.readState(tensor, 0, bytes));
      hash.update(bytes);
      if (keeps && prints)
        states.write(reinterpret_cast<const char *>(bytes.data()),
                     std::streamsize(bytes.size()));
    }
    if (prints)
      fmt::print("{} {:a} {:016x}\n", kind, loss, hash.digest());
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

  TrainModel &model;
  Question question;
  bool prints;
  std::size_t length;
  std::ofstream states;
  std::mt19937_64 random{5};
};

StatusOr<std::unique_ptr<SessionModel>>
openModel(const std::string &path, const std::string &device,
          const hal::MeshContext &mesh) {
  StatusOr<ArtifactReader> reader = ArtifactReader::open(path);
  if (!reader.ok())
    return reader.status();
  hal::SessionOptions options;
  options.mesh = mesh;
  options.device = device;
  options.programs = {"init", "train_step"};
  return SessionModel::open(*reader, options);
}

Status check(TrainModel &model, Question question, bool prints) {
  const ModelFacts &facts = model.facts();
  const auto rows = std::size_t(facts.microbatches * facts.rows);
  if (!facts.documents.starts ||
      rows < (question.packs ? question.rows : question.most))
    return Status::error("the program needs data.documents=separate and at "
                         "least as many rows as are used");
  return Check(model, std::move(question), prints).run();
}

Status run(const std::string &path, const std::string &device,
           Question question) {
  StatusOr<comm::Launch> launch = comm::readLaunch();
  if (!launch.ok())
    return launch.status();
  if (launch->size == 1) {
    auto model = openModel(path, device, {});
    return model.ok() ? check(**model, std::move(question), true)
                      : model.status();
  }
  auto world = comm::World::join(*launch, {});
  if (!world.ok())
    return world.status();
  hal::MeshContext mesh;
  mesh.rank = static_cast<std::uint32_t>(launch->rank);
  mesh.world = world->get();
  mesh.firstChannel = 1; // MeshModel has the channel of all ranks
  auto share = openModel(path, device, mesh);
  if (!share.ok())
    return share.status();
  auto model = MeshModel::create(share.take(), **world);
  if (!model.ok())
    return model.status();
  TESSERA_RETURN_IF_ERROR(
      check(**model, std::move(question), launch->rank == 0));
  return (*world)->leave();
}

} // namespace

int main(int argc, char **argv) {
  const std::string_view how = argc == 7 || argc == 8 ? argv[2] : "";
  if (how != "packed" && how != "alone") {
    fmt::print(stderr, "usage: packing-check PROGRAM packed|alone ROWS MOST "
                       "DOCUMENTS STATES [DEVICE]\n");
    return 2;
  }
  auto number = [&](int i) {
    return std::size_t(std::strtoull(argv[i], nullptr, 10));
  };
  const Status status =
      run(argv[1], argc == 8 ? argv[7] : "cpu",
          {how == "packed", number(3), number(4), number(5), argv[6]});
  if (!status.ok())
    fmt::print(stderr, "error: {}\n", status.message());
  return status.ok() ? 0 : 1;
}
