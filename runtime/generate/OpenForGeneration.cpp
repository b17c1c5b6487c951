// Opens models for generation: from runs, with their checkpoints, and from
// Hugging Face directories.
#include "runtime/generate/Generate.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/MeshModel.h"
#include "runtime/train/RunDirectory.h"
#include "runtime/train/RunGates.h"
#include "runtime/weights/ImportWeights.h"

#include <algorithm>
#include <filesystem>

namespace tessera {
namespace {

StatusOr<std::unique_ptr<SessionModel>>
openForGeneration(const std::string &program, const GenerateOptions &options) {
  StatusOr<ArtifactReader> reader = ArtifactReader::open(program);
  if (!reader.ok())
    return reader.status();
  hal::SessionOptions session;
  session.device = options.device;
  session.deviceOptions.threads = options.threads;
  session.deviceOptions.pool = options.pool;
  session.recordOptions.profile = options.profile;
  if (options.ranks) {
    session.mesh = options.ranks->context();
    if (options.threads == 0)
      session.deviceOptions.threads = options.ranks->threads();
  }
  if (options.program.empty()) {
    if (!reader->hasProgram("logits"))
      return Status::error("'{}' has no logits program; compile the model "
                           "again: {}",
                           program,
                           reader->root().rebuild_command()->string_view());
    session.programs.push_back("logits");
  }
  auto opened = hal::Session::open(*reader, session);
  if (!opened.ok())
    return opened.status();
  auto model = SessionModel::create(opened.take());
  endPhase(options.phases, "memory");
  return model;
}

/// Loads the checkpoint asked for, or the newest intact one; returns its name.
StatusOr<std::string> loadWeights(const RunPath &place, TrainModel &model,
                                  const TextSink &note) {
  if (!place.checkpoint.empty()) {
    std::string directory = place.run + "/" + place.checkpoint;
    StatusOr<CheckpointManifest> manifest = verifyCheckpoint(directory);
    if (!manifest.ok())
      return manifest.status();
    TESSERA_RETURN_IF_ERROR(loadCheckpoint(directory, *manifest, model,
                                           /*parametersOnly=*/true));
    return place.checkpoint;
  }
  auto loaded = resumeNewest(place.run, model, /*parametersOnly=*/true);
  if (!loaded.ok())
    return loaded.status();
  std::optional<ResumedCheckpoint> newest = loaded.take();
  if (!newest)
    return Status::error("'{}' has no checkpoint yet", place.run);
  for (const std::string &line : newest->skipped)
    note(line);
  return newest->name;
}

/// The error of a run directory without that checkpoint.
Status missingCheckpoint(const std::string &run, const std::string &name) {
  constexpr std::size_t kShown = 8; // keeps the line short
  auto names = listCheckpoints(run);
  if (!names.ok())
    return names.status();
  if (names->empty())
    return Status::error("'{}' has no checkpoint yet", run);
  const std::size_t shown = std::min(names->size(), kShown);
  std::string list;
  for (std::size_t i = 0; i < shown; ++i)
    list += (i ? ", " : "") + (*names)[i];
  if (names->size() > shown)
    list += fmt::format(" and {} older", names->size() - shown);
  return Status::error("'{}' has no checkpoint '{}'; it has {}", run, name,
                       list);
}

/// The weights of this rank's shard, of which alone it reads the files.
StatusOr<std::unique_ptr<SessionModel>>
importShard(const WeightFiles &weights, std::unique_ptr<SessionModel> shard,
            InferenceRanks &ranks) {
  auto mesh = MeshModel::create(std::move(shard), ranks.world());
  if (!mesh.ok())
    return mesh.status();
  TESSERA_RETURN_IF_ERROR(importAllWeights(weights, **mesh));
  return (*mesh)->takeShard();
}

/// Loads cached weights; false if there are none.
bool loadKept(const std::string &directory, WeightsCache &cache,
              TrainModel &model) {
  if (!cache.reads && !cache.writes)
    return false;
  auto kept = WeightCache::of(cache.folder, directory, model);
  if (!kept)
    return false;
  std::string note;
  if (cache.reads && kept->load(cache.writes, note)) {
    cache.mapped = kept->path();
    return true;
  }
  if (!note.empty())
    cache.note(note);
  if (cache.writes)
    cache.unkept = std::move(kept);
  return false;
}

} // namespace

//===--- runs -------------------------------------------------------------===//

StatusOr<RunPath> resolveRun(const std::string &path) {
  namespace fs = std::filesystem;
  std::error_code code;
  constexpr std::string_view kPromoted = "@promoted";
  if (path.ends_with(kPromoted)) {
    const std::string of = path.substr(0, path.size() - kPromoted.size());
    auto name = promotedCheckpoint(of);
    if (!name.ok())
      return name.status();
    if (name->empty())
      return Status::error("'{}' has no promoted checkpoint: no evaluation has "
                           "passed its gates",
                           of);
    return resolveRun(of + "/" + *name);
  }
  fs::path run = fs::path(path).lexically_normal();
  if (!run.has_filename()) // "run/" is "run"
    run = run.parent_path();
  const fs::path above =
      run.has_parent_path() ? run.parent_path() : fs::path(".");
  RunPath place;
  if (fs::exists(run / "manifest.json", code)) {
    place.checkpoint = run.filename().string();
    run = above;
  } else if (!fs::exists(run, code) && fs::exists(above / kProgramFile, code)) {
    return missingCheckpoint(above.string(), run.filename().string());
  }
  place.run = run.string();
  if (!fs::is_directory(run, code))
    return Status::error("'{}' is not a run directory, nor a model's with "
                         "config.json, nor in the hub's cache; correct the "
                         "name, or train a run with --out {}",
                         place.run, place.run);
  return place;
}

Status checkGenerate(const RunPath &place, const GenerateOptions &options) {
  TESSERA_RETURN_IF_ERROR(checkSampling(options.sampling));
  TESSERA_RETURN_IF_ERROR(hal::checkDeviceName(options.device));
  auto tokenizer = tokenizer::Tokenizer::load(place.run + "/" + kTokenizerFile);
  if (!tokenizer.ok())
    return tokenizer.status();
  auto names = listCheckpoints(place.run);
  if (!names.ok())
    return names.status();
  if (names->empty())
    return Status::error("'{}' has no checkpoint yet", place.run);
  return Status::success();
}

StatusOr<OpenedRun> openRun(const RunPath &place,
                            const GenerateOptions &options,
                            const TextSink &note) {
  std::string program =
      options.program.empty() ? place.program() : options.program;
  auto model = openForGeneration(program, options);
  if (!model.ok())
    return model.status();
  StatusOr<std::string> loaded = loadWeights(place, **model, note);
  if (!loaded.ok())
    return loaded.status();
  endPhase(options.phases, "weights");
  return OpenedRun{model.take(), loaded.take()};
}

//===--- Hugging Face directories -----------------------------------------===//

StatusOr<std::unique_ptr<SessionModel>>
openModelDirectory(const WeightFiles &weights, const GenerateOptions &options) {
  if (options.weights && options.factors)
    return Status::error("weights that are multiplied with factors cannot use "
                         "the weight cache");
  auto model = openForGeneration(options.program, options);
  if (!model.ok())
    return model;
  if (options.ranks) {
    model = importShard(weights, model.take(), *options.ranks);
    endPhase(options.phases, "weights");
    return model;
  }
  if (options.weights && loadKept(weights.place(), *options.weights, **model)) {
    endPhase(options.phases, "weights");
    return model;
  }
  const WeightFactors none;
  TESSERA_RETURN_IF_ERROR(importAllWeights(
      weights, **model, options.factors ? *options.factors : none));
  endPhase(options.phases, "weights");
  return model;
}

//===--- models in one file -----------------------------------------------===//

StatusOr<std::unique_ptr<SessionModel>>
openPackagedModel(const PackagedModel &package,
                  const GenerateOptions &options) {
  GenerateOptions own = options;
  own.program = package.path();
  auto model = openForGeneration(own.program, own);
  if (!model.ok())
    return model;
  TESSERA_RETURN_IF_ERROR(package.load(**model));
  endPhase(options.phases, "weights");
  return model;
}

} // namespace tessera
