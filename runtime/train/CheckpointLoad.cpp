// Finding, proving and loading checkpoints.
#include "runtime/data/ShallowJson.h"
#include "runtime/support/Hash.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/Manifest.h"
#include "runtime/weights/AdapterNames.h"
#include "runtime/weights/CopyTensor.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fcntl.h>
#include <unistd.h>

namespace tessera {
namespace {

constexpr std::size_t kMaxManifestBytes = 64u << 20;

/// The step in "step-000100", or nothing.
std::optional<uint64_t> stepOf(std::string_view name) {
  constexpr std::string_view prefix = "step-";
  if (!name.starts_with(prefix))
    return std::nullopt;
  name.remove_prefix(prefix.size());
  uint64_t step = 0;
  auto [end, code] =
      std::from_chars(name.data(), name.data() + name.size(), step);
  if (code != std::errc() || end != name.data() + name.size() ||
      checkpointName(step).substr(prefix.size()) != name)
    return std::nullopt;
  return step;
}

Status verifyFile(const std::string &path, const CheckpointFile &expected) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return Status::error("cannot open '{}': {}", path, std::strerror(errno));
  std::vector<std::byte> buffer(kCheckpointPiece);
  Hasher64 hasher;
  uint64_t bytes = 0;
  ssize_t done = 0;
  while ((done = ::read(fd, buffer.data(), buffer.size())) > 0 ||
         (done < 0 && errno == EINTR)) {
    if (done < 0)
      continue;
    hasher.update(std::span(buffer).first(std::size_t(done)));
    bytes += uint64_t(done);
  }
  int code = errno;
  ::close(fd);
  if (done < 0)
    return Status::error("cannot read '{}': {}", path, std::strerror(code));
  if (bytes != expected.bytes)
    return Status::error("'{}' has {} bytes, its manifest says {}", path, bytes,
                         expected.bytes);
  if (hasher.digest() != expected.hash)
    return Status::error("'{}' has the hash {:016x}, its manifest says {:016x}",
                         path, hasher.digest(), expected.hash);
  return Status::success();
}

/// Text of a scalar, or of a whole value that is not one.
std::string shown(const nlohmann::json *value) {
  if (!value)
    return "absent";
  return value->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string shapeText(const std::vector<uint64_t> &shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// One file per group of roles; both are opened before any state changes.
struct OpenedFiles {
  std::unique_ptr<SafetensorsFile> parameters, optimizer;
  SafetensorsFile *of(const StateTensor &tensor) const {
    if (tensor.role == StateRole::cache)
      return nullptr;
    return tensor.role == StateRole::parameter ? parameters.get()
                                               : optimizer.get();
  }
};

StatusOr<std::unique_ptr<SafetensorsFile>>
openListed(const std::string &directory, const CheckpointManifest &manifest,
           const std::string &name) {
  bool listed =
      std::any_of(manifest.files.begin(), manifest.files.end(),
                  [&](const auto &file) { return file.name == name; });
  if (!listed)
    return Status::error("'{}' has no {} in its manifest", directory, name);
  StatusOr<SafetensorsFile> file =
      SafetensorsFile::open(directory + "/" + name);
  if (!file.ok())
    return file.status();
  return std::make_unique<SafetensorsFile>(file.take());
}

Status checkPart(const std::string &directory, const StateTensor &tensor,
                 const StatePart &part, const SafetensorsFile &file,
                 bool exact) {
  const SafetensorsEntry *entry = file.header().find(part.name);
  if (!entry)
    return Status::error("'{}' belongs to another program: it has no tensor "
                         "'{}'; resume with the program that wrote it, or "
                         "start a new run with --init-from",
                         directory, part.name);
  bool fits =
      exact ? entry->type == tensor.type : converts(entry->type, tensor.type);
  if (entry->shape != part.shape || !fits)
    return Status::error(
        "'{}' belongs to another program: tensor '{}' is {} {} there and {} "
        "{} here; resume with the program that wrote it",
        directory, part.name, safetensorsName(entry->type),
        shapeText(entry->shape), safetensorsName(tensor.type),
        shapeText(part.shape));
  return Status::success();
}

/// An error if the checkpoint has an adapter that the model would leave out.
Status checkAdapter(const std::string &directory, const TrainModel &model,
                    const SafetensorsFile &parameters) {
  const auto &entries = parameters.header().tensors;
  const auto hasOwn = [&](bool (*isOne)(std::string_view)) {
    return std::ranges::any_of(model.state(), isOne, &StateTensor::name);
  };
  // Of a program with another target, checkPart() names what it lacks. A rank
  // of a pipeline has some of the layers.
  const bool hasFactors = hasOwn(isAdapterFactor),
             hasMagnitudes = hasOwn(isMagnitude);
  const auto isLeftOut = [&](const SafetensorsEntry &entry) {
    return hasFactors ? isMagnitude(entry.name) && !hasMagnitudes
                      : isAdapterFactor(entry.name);
  };
  const auto factor = std::ranges::find_if(entries, isLeftOut);
  if (factor == entries.end())
    return Status::success();
  return Status::error("'{}' has an adapter ('{}'), and this program has none, "
                       "or one of another kind; merge it with tessera export "
                       "--merge, and use what that writes",
                       directory, factor->name);
}

/// Checks that every tensor of the model is present with its type and shape.
Status checkTensors(const std::string &directory, const TrainModel &model,
                    const OpenedFiles &files) {
  TESSERA_RETURN_IF_ERROR(checkAdapter(directory, model, *files.parameters));
  // Resuming training requires exactly the saved bits.
  bool exact = files.optimizer != nullptr;
  for (const StateTensor &tensor : model.state())
    if (SafetensorsFile *file = files.of(tensor))
      for (const StatePart &part : partsOf(tensor))
        TESSERA_RETURN_IF_ERROR(
            checkPart(directory, tensor, part, *file, exact));
  return Status::success();
}

} // namespace

StatusOr<std::vector<std::string>> listCheckpoints(const std::string &run) {
  namespace fs = std::filesystem;
  std::vector<std::pair<uint64_t, std::string>> found;
  std::error_code code;
  fs::directory_iterator entries(run, code), end;
  if (code == std::errc::no_such_file_or_directory)
    return std::vector<std::string>();
  for (; !code && entries != end; entries.increment(code)) {
    std::string name = entries->path().filename().string();
    std::error_code ignored; // what cannot be examined is not a checkpoint
    if (std::optional<uint64_t> step = stepOf(name);
        step && entries->is_directory(ignored))
      found.emplace_back(*step, name);
  }
  if (code)
    return Status::error("cannot list '{}': {}", run, code.message());
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  names.reserve(found.size());
  for (auto &[step, name] : found)
    names.push_back(std::move(name));
  return names;
}

StatusOr<CheckpointManifest> verifyCheckpoint(const std::string &directory) {
  std::string path = directory + "/manifest.json";
  StatusOr<std::string> text = readFile(path, kMaxManifestBytes);
  if (!text.ok())
    return text.status();
  StatusOr<CheckpointManifest> manifest = parseManifest(*text, path);
  if (!manifest.ok())
    return manifest.status();
  for (const CheckpointFile &file : manifest->files)
    TESSERA_RETURN_IF_ERROR(verifyFile(directory + "/" + file.name, file));
  return manifest;
}

std::string configDifference(const std::string &there,
                             const std::string &here) {
  using nlohmann::json;
  json theirs = parseShallowJson(there);
  json ours = parseShallowJson(here);
  if (!theirs.is_object() || !ours.is_object())
    return there == here ? "" : "config.json differs";
  json both = theirs;
  both.update(ours);
  for (const auto &[key, unused] : both.items()) {
    auto left = theirs.find(key), right = ours.find(key);
    const json *a = left == theirs.end() ? nullptr : &*left;
    const json *b = right == ours.end() ? nullptr : &*right;
    if (!a || !b || *a != *b)
      return fmt::format("{} is {} there and {} here", key, shown(a), shown(b));
  }
  return "";
}

Status loadCheckpoint(const std::string &directory,
                      const CheckpointManifest &manifest, TrainModel &model,
                      bool parametersOnly) {
  std::string difference =
      configDifference(manifest.modelConfig, model.facts().modelConfig);
  if (!difference.empty())
    return Status::error("'{}' is a checkpoint of another model: {}; use the "
                         "program that wrote it or another --out",
                         directory, difference);
  OpenedFiles files;
  auto parameters = openListed(directory, manifest, "model.safetensors");
  if (!parameters.ok())
    return parameters.status();
  files.parameters = parameters.take();
  if (!parametersOnly) {
    auto optimizer = openListed(directory, manifest, "optimizer.safetensors");
    if (!optimizer.ok())
      return optimizer.status();
    files.optimizer = optimizer.take();
  }
  TESSERA_RETURN_IF_ERROR(checkTensors(directory, model, files));
  std::vector<TensorCopy> copies;
  for (const StateTensor &tensor : model.state())
    if (SafetensorsFile *file = files.of(tensor))
      for (const StatePart &part : partsOf(tensor))
        copies.push_back(
            {&tensor, part, {file, file->header().find(part.name)}});
  return copyTensors(model, copies);
}

StatusOr<std::optional<ResumedCheckpoint>>
resumeNewest(const std::string &run, TrainModel &model, bool parametersOnly) {
  StatusOr<std::vector<std::string>> names = listCheckpoints(run);
  if (!names.ok())
    return names.status();
  ResumedCheckpoint resumed;
  for (const std::string &name : *names) {
    const std::string directory = fmt::format("{}/{}", run, name);
    StatusOr<CheckpointManifest> manifest = verifyCheckpoint(directory);
    if (!manifest.ok()) {
      resumed.skipped.push_back(
          fmt::format("skipping {}: {}", name, manifest.message()));
      continue;
    }
    TESSERA_RETURN_IF_ERROR(
        loadCheckpoint(directory, *manifest, model, parametersOnly));
    resumed.name = name;
    resumed.manifest = manifest.take();
    return std::optional(std::move(resumed));
  }
  if (!names->empty())
    return Status::error("all {} checkpoints in '{}' are damaged; the newest: "
                         "{}",
                         names->size(), run, resumed.skipped.front());
  return std::optional<ResumedCheckpoint>();
}

} // namespace tessera
