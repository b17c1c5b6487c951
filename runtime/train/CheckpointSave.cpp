// Writing a checkpoint so that no moment exists in which a crash loses one.
#include "runtime/support/Hash.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/Manifest.h"
#include "runtime/weights/StateParts.h"

#include <algorithm>

namespace tessera {
namespace {

/// A file of the checkpoint under way, hashed as it is written.
class HashedFile : public SafetensorsSink {
public:
  HashedFile(DurableFile &file, CheckpointFile &entry)
      : file(file), entry(entry) {}
  Status write(std::span<const std::byte> bytes) override {
    TESSERA_RETURN_IF_ERROR(file.write(bytes));
    hasher.update(bytes);
    entry.bytes += bytes.size();
    entry.hash = hasher.digest();
    return Status::success();
  }

private:
  DurableFile &file;
  CheckpointFile &entry;
  Hasher64 hasher;
};

/// Creates `name` in `directory`, lets `fill` write it, syncs it, and notes
/// size and hash.
template <typename Fill>
Status addFile(FileOperations &files, const std::string &directory,
               const std::string &name, CheckpointManifest &manifest,
               Fill fill) {
  StatusOr<DurableFile> file =
      DurableFile::create(files, directory + "/" + name);
  if (!file.ok())
    return file.status();
  CheckpointFile entry{name, 0, 0};
  HashedFile sink(*file, entry);
  TESSERA_RETURN_IF_ERROR(fill(sink));
  TESSERA_RETURN_IF_ERROR(file->finish());
  manifest.files.push_back(entry);
  return Status::success();
}

Status emitState(TrainModel &model, const StateTensor &tensor,
                 const StatePart &part, std::vector<std::byte> &buffer,
                 SafetensorsSink &sink) {
  for (uint64_t done = 0; done < part.size; done += kCheckpointPiece) {
    buffer.resize(std::min(kCheckpointPiece, part.size - done));
    TESSERA_RETURN_IF_ERROR(
        model.readState(tensor, part.offset + done, buffer));
    TESSERA_RETURN_IF_ERROR(sink.write(buffer));
  }
  return Status::success();
}

Status writeTensors(SafetensorsSink &sink, TrainModel &model, bool parameters) {
  std::vector<std::byte> buffer;
  std::vector<SafetensorsTensor> tensors;
  for (const StateTensor &tensor : model.state())
    if ((tensor.role == StateRole::parameter) == parameters)
      for (StatePart &part : partsOf(tensor))
        tensors.push_back(
            {part.name, tensor.type, part.shape, part.size,
             [&model, &tensor, &buffer, part](SafetensorsSink &out) {
               return emitState(model, tensor, part, buffer, out);
             }});
  // "pt" is what transformers asks of a file that it is to load.
  return writeSafetensors(sink, std::move(tensors), {{"format", "pt"}});
}

Status writeDirectory(FileOperations &files, const std::string &directory,
                      TrainModel &model, CheckpointManifest &manifest) {
  TESSERA_RETURN_IF_ERROR(files.makeDirectory(directory));
  for (bool parameters : {true, false})
    TESSERA_RETURN_IF_ERROR(
        addFile(files, directory,
                parameters ? "model.safetensors" : "optimizer.safetensors",
                manifest, [&](SafetensorsSink &sink) {
                  return writeTensors(sink, model, parameters);
                }));
  TESSERA_RETURN_IF_ERROR(addFile(
      files, directory, "config.json", manifest, [&](SafetensorsSink &sink) {
        const std::string &text = manifest.modelConfig;
        return sink.write(std::as_bytes(std::span(text.data(), text.size())));
      }));
  StatusOr<DurableFile> file =
      DurableFile::create(files, directory + "/manifest.json");
  if (!file.ok())
    return file.status();
  TESSERA_RETURN_IF_ERROR(file->write(printManifest(manifest)));
  TESSERA_RETURN_IF_ERROR(file->finish());
  return files.syncDirectory(directory);
}

/// Takes a directory out of sight in one step before its files go, so that no
/// reader meets a half-removed checkpoint.
Status removeCheckpoint(FileOperations &files, const std::string &run,
                        const std::string &name) {
  std::string hidden = run + "/.tmp-removed-" + name;
  TESSERA_RETURN_IF_ERROR(files.removeTree(hidden));
  TESSERA_RETURN_IF_ERROR(files.rename(run + "/" + name, hidden));
  return files.removeTree(hidden);
}

/// Gives the finished directory its name, over a damaged one of that name.
Status publish(FileOperations &files, const std::string &run,
               const std::string &name, const std::string &partial) {
  StatusOr<std::vector<std::string>> present = listCheckpoints(run);
  if (!present.ok())
    return present.status();
  if (std::find(present->begin(), present->end(), name) != present->end())
    TESSERA_RETURN_IF_ERROR(removeCheckpoint(files, run, name));
  TESSERA_RETURN_IF_ERROR(files.rename(partial, run + "/" + name));
  return files.syncDirectory(run);
}

} // namespace

std::string checkpointName(uint64_t step) {
  return fmt::format("step-{:06}", step);
}

Status saveCheckpoint(FileOperations &files, const std::string &run,
                      TrainModel &model, const TrainPosition &position,
                      const std::string &recipe, uint64_t keep,
                      std::string_view kept) {
  const ModelFacts &facts = model.facts();
  CheckpointManifest manifest{position,
                              facts.programHash,
                              facts.compilerVersion,
                              facts.modelConfig,
                              recipe,
                              {}};
  std::string name = checkpointName(position.step);
  std::string partial = run + "/.tmp-" + name;
  TESSERA_RETURN_IF_ERROR(files.removeTree(partial));
  Status status = writeDirectory(files, partial, model, manifest);
  if (status.ok())
    status = publish(files, run, name, partial);
  if (!status.ok()) {
    // Gives the space back, which is what a full disk needs; the error that
    // counts is the first one.
    (void)files.removeTree(partial);
    return Status::error("checkpoint {} was not saved, earlier ones are "
                         "untouched: {}",
                         name, status.message());
  }

  StatusOr<std::vector<std::string>> present = listCheckpoints(run);
  if (!present.ok())
    return present.status();
  // Newer ones can only be damaged leftovers that resuming stepped over: they
  // must not push intact ones out.
  auto older = std::find(present->begin(), present->end(), name);
  for (uint64_t count = 0; keep > 0 && older != present->end(); ++older)
    if (++count > keep && *older != kept)
      TESSERA_RETURN_IF_ERROR(removeCheckpoint(files, run, *older));
  return Status::success();
}

Status removeNewerCheckpoints(FileOperations &files, const std::string &run,
                              uint64_t step) {
  StatusOr<std::vector<std::string>> present = listCheckpoints(run);
  if (!present.ok())
    return present.status();
  for (const std::string &name : *present) { // newest first
    if (name == checkpointName(step))
      break;
    TESSERA_RETURN_IF_ERROR(removeCheckpoint(files, run, name));
  }
  return Status::success();
}

} // namespace tessera
