#include "runtime/data/NewDirectory.h"

#include <filesystem>

#include <unistd.h>

namespace tessera {

namespace fs = std::filesystem;

namespace {
class FileSink final : public SafetensorsSink {
public:
  explicit FileSink(DurableFile &file) : file(file) {}
  Status write(std::span<const std::byte> bytes) override {
    return file.write(bytes);
  }

private:
  DurableFile &file;
};

fs::path placeOf(const std::string &directory) {
  fs::path place = fs::path(directory).lexically_normal();
  return place.has_filename() ? place : place.parent_path(); // "out/" is "out"
}
} // namespace

Status checkNewDirectory(const std::string &directory) {
  fs::path place = placeOf(directory);
  std::error_code code;
  if (fs::exists(place, code) || place.empty())
    return Status::error("'{}' is there already; choose another directory",
                         directory);
  return Status::success();
}

Status
makeNewDirectory(const std::string &directory,
                 const std::function<Status(const std::string &)> &fill) {
  FileOperations &files = systemFiles();
  TESSERA_RETURN_IF_ERROR(checkNewDirectory(directory));
  fs::path place = placeOf(directory);
  fs::path above = place.has_parent_path() ? place.parent_path() : ".";
  std::string partial =
      (above / fmt::format(".tmp-{}-{}", place.filename().string(), ::getpid()))
          .string();
  // No other process has this name: it is from one that ended with our number.
  TESSERA_RETURN_IF_ERROR(files.removeTree(partial));
  Status status = files.makeDirectory(partial);
  if (status.ok())
    status = fill(partial);
  if (status.ok())
    status = files.syncDirectory(partial);
  if (status.ok())
    status = files.rename(partial, place.string());
  if (!status.ok()) {
    (void)files.removeTree(partial); // the error that counts is the first one
    return status;
  }
  return files.syncDirectory(above.string());
}

Status writeNewFile(const std::string &path, std::string_view text) {
  auto file = DurableFile::create(systemFiles(), path);
  if (!file.ok())
    return file.status();
  TESSERA_RETURN_IF_ERROR(file->write(text));
  return file->finish();
}

Status writeNewSafetensors(const std::string &path,
                           std::vector<SafetensorsTensor> tensors) {
  auto file = DurableFile::create(systemFiles(), path);
  if (!file.ok())
    return file.status();
  FileSink sink(*file);
  // "pt" is what transformers asks of a file that it is to load.
  TESSERA_RETURN_IF_ERROR(
      writeSafetensors(sink, std::move(tensors), {{"format", "pt"}}));
  return file->finish();
}

} // namespace tessera
