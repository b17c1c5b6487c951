// Element types, opening files and sharded models, and writing.
#include "runtime/data/Safetensors.h"
#include "runtime/data/ShallowJson.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tessera {
namespace {

struct TypeRow {
  std::string_view name;
  unsigned bits;
};
// Indexed by SafetensorsType.
constexpr std::array<TypeRow, 22> kTypes = {{
    {"BOOL", 8},    {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6},
    {"U8", 8},      {"I8", 8},          {"F8_E5M2", 8},     {"F8_E4M3", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},        {"BF16", 16},       {"I32", 32},
    {"U32", 32},    {"F32", 32},        {"C64", 64},        {"F64", 64},
    {"I64", 64},    {"U64", 64},
}};

/// Reads exactly `out.size()` bytes at `offset`.
Status readAt(int fd, uint64_t offset, std::span<std::byte> out,
              const std::string &path) {
  while (!out.empty()) {
    ssize_t done =
        ::pread(fd, out.data(), std::min<std::size_t>(out.size(), 1u << 30),
                off_t(offset));
    if (done < 0 && errno == EINTR)
      continue;
    if (done < 0)
      return Status::error("cannot read '{}' at byte {}: {}", path, offset,
                           std::strerror(errno));
    if (done == 0)
      return Status::error("'{}' ends at byte {}, it was longer when it was "
                           "opened",
                           path, offset);
    out = out.subspan(std::size_t(done));
    offset += uint64_t(done);
  }
  return Status::success();
}

/// A shard's name in an index may not lead out of the model's directory.
bool isPlainName(const std::string &name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find('/') == name.npos && name.find('\0') == name.npos;
}

constexpr std::size_t kMaxIndexBytes = 256u << 20;

/// Passes on what a tensor's emit writes, up to the size that the header says.
class CountingSink final : public SafetensorsSink {
public:
  CountingSink(SafetensorsSink &sink, const SafetensorsTensor &tensor)
      : sink(sink), tensor(tensor) {}
  Status write(std::span<const std::byte> bytes) override {
    written += bytes.size();
    return written > tensor.size ? differs() : sink.write(bytes);
  }
  Status finish() const {
    return written == tensor.size ? Status::success() : differs();
  }

private:
  // What follows would be read as another tensor's.
  Status differs() const {
    return Status::error("'{}' has {} bytes in the header, but {} were to be "
                         "written; please report this",
                         tensor.name, tensor.size, written);
  }
  SafetensorsSink &sink;
  const SafetensorsTensor &tensor;
  uint64_t written = 0;
};

} // namespace

std::string_view safetensorsName(SafetensorsType type) {
  return kTypes[std::size_t(type)].name;
}

unsigned safetensorsBits(SafetensorsType type) {
  return kTypes[std::size_t(type)].bits;
}

std::optional<SafetensorsType> safetensorsType(std::string_view name) {
  for (std::size_t index = 0; index < kTypes.size(); ++index)
    if (kTypes[index].name == name)
      return SafetensorsType(index);
  return std::nullopt;
}

const SafetensorsEntry *SafetensorsHeader::find(std::string_view name) const {
  auto found = byName.find(name);
  return found == byName.end() ? nullptr : &tensors[found->second];
}

StatusOr<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  SafetensorsFile file;
  file.filePath = path;
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info;
  if (file.fd < 0 || ::fstat(file.fd, &info) != 0)
    return Status::error("cannot open '{}': {}", path, std::strerror(errno));
  if (!S_ISREG(info.st_mode))
    return Status::error("'{}' is not a regular file", path);
  file.fileSize = uint64_t(info.st_size);
  uint64_t length = 0;
  std::vector<std::byte> head(std::min<uint64_t>(8, file.fileSize));
  TESSERA_RETURN_IF_ERROR(readAt(file.fd, 0, head, path));
  if (head.size() == 8)
    std::memcpy(&length, head.data(), 8);
  // The length is proven against the file before it sizes a buffer.
  if (length <= kSafetensorsMaxHeader && file.fileSize >= 8 &&
      length <= file.fileSize - 8) {
    head.resize(8 + length);
    TESSERA_RETURN_IF_ERROR(
        readAt(file.fd, 8, std::span(head).subspan(8), path));
  }
  StatusOr<SafetensorsHeader> parsed = parseSafetensors(head, file.fileSize);
  if (!parsed.ok())
    return Status::error("'{}': {}", path, parsed.message());
  file.parsed = parsed.take();
  return file;
}

SafetensorsFile SafetensorsFile::of(const std::string &path,
                                    std::vector<SafetensorsEntry> tensors) {
  SafetensorsFile file;
  file.filePath = path;
  file.parsed.tensors = std::move(tensors);
  for (std::size_t i = 0; i < file.parsed.tensors.size(); ++i)
    file.parsed.byName[file.parsed.tensors[i].name] = i;
  return file;
}

SafetensorsFile::SafetensorsFile(SafetensorsFile &&other) noexcept {
  *this = std::move(other);
}

SafetensorsFile &SafetensorsFile::operator=(SafetensorsFile &&other) noexcept {
  std::swap(filePath, other.filePath);
  std::swap(parsed, other.parsed);
  std::swap(fd, other.fd);
  std::swap(fileSize, other.fileSize);
  return *this;
}

SafetensorsFile::~SafetensorsFile() {
  if (fd >= 0)
    ::close(fd);
}

Status SafetensorsFile::read(const SafetensorsEntry &entry, uint64_t offset,
                             std::span<std::byte> out) const {
  uint64_t size = entry.end - entry.begin;
  if (offset > size || out.size() > size - offset)
    return Status::error("'{}' in '{}' has {} bytes, but {} from byte {} are "
                         "wanted",
                         entry.name, filePath, size, out.size(), offset);
  if (entry.source)
    return entry.source->read(offset, out);
  return readAt(fd, parsed.dataStart + entry.begin + offset, out, filePath);
}

Status writeSafetensors(SafetensorsSink &sink,
                        std::vector<SafetensorsTensor> tensors,
                        const std::map<std::string, std::string> &metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const auto &a, const auto &b) {
    return a.type != b.type ? a.type > b.type : a.name < b.name;
  });
  auto quoted = [](const std::string &text) {
    return nlohmann::json(text).dump(-1, ' ', false,
                                     nlohmann::json::error_handler_t::replace);
  };
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto &[key, value] : metadata)
      header += fmt::format("{}:{},", quoted(key), quoted(value));
    header.back() = '}';
    header += ',';
  }
  uint64_t offset = 0;
  for (const SafetensorsTensor &tensor : tensors) {
    header += fmt::format(
        "{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},",
        quoted(tensor.name), safetensorsName(tensor.type),
        fmt::join(tensor.shape, ","), offset, offset + tensor.size);
    offset += tensor.size;
  }
  if (header.back() == ',')
    header.pop_back();
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  if (header.size() > kSafetensorsMaxHeader)
    return Status::error("{} tensors need a header of {} bytes, more than the "
                         "format's {}",
                         tensors.size(), header.size(), kSafetensorsMaxHeader);
  uint64_t length = header.size();
  TESSERA_RETURN_IF_ERROR(sink.write(std::as_bytes(std::span(&length, 1))));
  TESSERA_RETURN_IF_ERROR(
      sink.write(std::as_bytes(std::span(header.data(), header.size()))));
  for (const SafetensorsTensor &tensor : tensors) {
    CountingSink counting(sink, tensor);
    TESSERA_RETURN_IF_ERROR(tensor.emit(counting));
    TESSERA_RETURN_IF_ERROR(counting.finish());
  }
  return Status::success();
}

SafetensorsModel SafetensorsModel::of(SafetensorsFile file) {
  SafetensorsModel model;
  model.opened.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
  for (const SafetensorsEntry &entry : model.opened[0]->header().tensors)
    model.byName[entry.name] = {model.opened[0].get(), &entry};
  return model;
}

StatusOr<SafetensorsModel> SafetensorsModel::open(const std::string &path) {
  namespace fs = std::filesystem;
  SafetensorsModel model;
  std::error_code code;
  std::string single = path, directory = fs::path(path).parent_path().string();
  if (fs::is_directory(path, code)) {
    directory = path;
    std::string index = path + "/model.safetensors.index.json";
    if (fs::exists(index, code)) {
      TESSERA_RETURN_IF_ERROR(model.addShards(path, index));
      TESSERA_RETURN_IF_ERROR(model.dequantizeFloat8(directory));
      TESSERA_RETURN_IF_ERROR(model.dequantizeMxfp4());
      return model;
    }
    single = path + "/model.safetensors";
    if (!fs::exists(single, code))
      return Status::error("'{}' has neither model.safetensors nor "
                           "model.safetensors.index.json",
                           path);
  }
  StatusOr<SafetensorsFile> file = SafetensorsFile::open(single);
  if (!file.ok())
    return file.status();
  model.opened.push_back(std::make_unique<SafetensorsFile>(file.take()));
  for (const SafetensorsEntry &entry : model.opened[0]->header().tensors)
    model.byName[entry.name] = {model.opened[0].get(), &entry};
  TESSERA_RETURN_IF_ERROR(model.dequantizeFloat8(directory));
  TESSERA_RETURN_IF_ERROR(model.dequantizeMxfp4());
  return model;
}

Status SafetensorsModel::addShards(const std::string &directory,
                                   const std::string &indexPath) {
  StatusOr<std::string> text = readFile(indexPath, kMaxIndexBytes);
  if (!text.ok())
    return text.status();
  nlohmann::json index = parseShallowJson(*text);
  auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object())
    return Status::error("'{}' must be a json object with a 'weight_map'",
                         indexPath);
  std::map<std::string, const SafetensorsFile *> shards;
  for (const auto &[tensor, shard] : map->items()) {
    if (!shard.is_string() ||
        !isPlainName(shard.get_ref<const std::string &>()))
      return Status::error(
          "'{}': weight_map.{} must be a plain file name "
          "in the index's directory, got: {}",
          indexPath, tensor,
          shard.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    const std::string &name = shard.get_ref<const std::string &>();
    const SafetensorsFile *&file = shards[name];
    if (!file) {
      StatusOr<SafetensorsFile> read =
          SafetensorsFile::open(fmt::format("{}/{}", directory, name));
      if (!read.ok())
        return Status::error("{} (named by '{}')", read.message(), indexPath);
      opened.push_back(std::make_unique<SafetensorsFile>(read.take()));
      file = opened.back().get();
    }
    const SafetensorsEntry *entry = file->header().find(tensor);
    if (!entry)
      return Status::error("'{}' lists '{}' in '{}', which does not have it",
                           indexPath, tensor, name);
    byName[tensor] = {file, entry};
  }
  return Status::success();
}

} // namespace tessera
