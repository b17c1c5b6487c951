#include "runtime/data/gguf/Gguf.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <cstring>

namespace tessera {

static constexpr uint64_t maxName = 65535; // bytes of a key, by the format
static constexpr uint32_t maxRank = 4;     // GGML_MAX_DIMS
static constexpr uint64_t maxAlignment = 1 << 20;

std::string_view name(GgufKind kind) {
  static constexpr std::string_view names[] = {
      "u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
      "bool", "string", "array", "u64", "i64", "f64"};
  auto number = static_cast<size_t>(kind);
  return number < std::size(names) ? names[number] : "unknown";
}

/// Bytes of a number of that kind; 0 for what is none.
static size_t widthOf(GgufKind kind) {
  static constexpr uint8_t widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  auto number = static_cast<size_t>(kind);
  return number < std::size(widths) ? widths[number] : 0;
}

//===--- values -----------------------------------------------------------===//

template <typename T> static T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

bool GgufValue::get(bool &to) const {
  if (kindOf != GgufKind::Bool)
    return false;
  to = bytes[0] != std::byte(0);
  return true;
}

bool GgufValue::get(int64_t &to) const {
  switch (kindOf) {
  case GgufKind::U8:
    to = load<uint8_t>(bytes);
    return true;
  case GgufKind::I8:
    to = load<int8_t>(bytes);
    return true;
  case GgufKind::U16:
    to = load<uint16_t>(bytes);
    return true;
  case GgufKind::I16:
    to = load<int16_t>(bytes);
    return true;
  case GgufKind::U32:
    to = load<uint32_t>(bytes);
    return true;
  case GgufKind::I32:
    to = load<int32_t>(bytes);
    return true;
  case GgufKind::I64:
    to = load<int64_t>(bytes);
    return true;
  case GgufKind::U64:
    if (load<uint64_t>(bytes) > INT64_MAX)
      return false;
    to = static_cast<int64_t>(load<uint64_t>(bytes));
    return true;
  default:
    return false;
  }
}

bool GgufValue::get(uint64_t &to) const {
  if (kindOf == GgufKind::U64) {
    to = load<uint64_t>(bytes);
    return true;
  }
  int64_t value = 0;
  if (!get(value) || value < 0)
    return false;
  to = static_cast<uint64_t>(value);
  return true;
}

bool GgufValue::get(double &to) const {
  if (kindOf == GgufKind::F32)
    to = load<float>(bytes);
  else if (kindOf == GgufKind::F64)
    to = load<double>(bytes);
  else
    return false;
  return true;
}

bool GgufValue::get(std::string_view &to) const {
  if (kindOf != GgufKind::Text)
    return false;
  to = strings[0];
  return true;
}

GgufValue GgufValue::at(size_t i) const {
  GgufValue element;
  element.kindOf = elementOf;
  if (elementOf == GgufKind::Text)
    element.strings.push_back(strings[i]);
  else
    element.bytes = bytes.subspan(i * widthOf(elementOf), widthOf(elementOf));
  return element;
}

const GgufValue *GgufFile::find(std::string_view key) const {
  auto found = values.find(key);
  return found == values.end() ? nullptr : &found->second;
}

const GgufTensor *GgufFile::tensor(std::string_view name) const {
  auto found = byName.find(name);
  return found == byName.end() ? nullptr : &found->second;
}

Status GgufFile::read(const GgufTensor &tensor, uint64_t offset,
                      std::span<std::byte> out) const {
  if (mapping.bytes().empty()) { // of parse()
    std::ranges::copy(bytes(tensor).subspan(offset, out.size()), out.begin());
    return Status::success();
  }
  Status status = mapping.copy(tensor.offset + offset, out);
  return status.ok() ? status : Status::error("{}: {}", path, status.message());
}

//===--- reading ----------------------------------------------------------===//

/// Goes through the file once; a length is held against what is left before
/// anything is made of it.
class GgufReader {
public:
  GgufReader(std::span<const std::byte> bytes, GgufFile &file)
      : bytes(bytes), file(file) {}
  Status read();

private:
  template <typename... Args>
  Status error(fmt::format_string<Args...> format, Args &&...args) const {
    return Status::error("{}: {}", file.path,
                         fmt::format(format, std::forward<Args>(args)...));
  }
  uint64_t left() const { return bytes.size() - position; }
  Status truncated(std::string_view what) const {
    return error("the file ends within {} at byte {}; it is truncated or "
                 "damaged",
                 what, position);
  }
  template <typename T> Status number(T &to, std::string_view what) {
    if (left() < sizeof(T))
      return truncated(what);
    to = load<T>(bytes.subspan(position));
    position += sizeof(T);
    return Status::success();
  }
  Status text(std::string_view &to, std::string_view what);
  Status named(std::string_view &to, std::string_view what);
  Status pair();
  Status value(std::string_view key, GgufValue &to);
  Status array(std::string_view key, GgufValue &to);
  Status tensor();
  Status sizeOf(GgufTensor &tensor) const;
  Status place();

  std::span<const std::byte> bytes;
  GgufFile &file;
  size_t position = 0;
};

Status GgufReader::text(std::string_view &to, std::string_view what) {
  uint64_t length = 0;
  TESSERA_RETURN_IF_ERROR(number(length, what));
  if (length > left())
    return truncated(what);
  to = {reinterpret_cast<const char *>(bytes.data()) + position, length};
  position += length;
  return Status::success();
}

Status GgufReader::named(std::string_view &to, std::string_view what) {
  TESSERA_RETURN_IF_ERROR(text(to, what));
  if (to.empty() || to.size() > maxName || !isUtf8(to))
    return error("{} before byte {} must be UTF-8 of 1 to {} bytes", what,
                 position, maxName);
  return Status::success();
}

Status GgufReader::array(std::string_view key, GgufValue &to) {
  uint32_t kind = 0;
  uint64_t count = 0;
  TESSERA_RETURN_IF_ERROR(number(kind, "an array"));
  TESSERA_RETURN_IF_ERROR(number(count, "an array"));
  to.elementOf = GgufKind(kind);
  if (to.elementOf == GgufKind::Array)
    return error("key {}: arrays of arrays are not supported", quote(key));
  bool isText = to.elementOf == GgufKind::Text;
  size_t width = isText ? sizeof(uint64_t) : widthOf(to.elementOf);
  if (width == 0)
    return error("key {}: kind {} is none of GGUF's", quote(key), kind);
  if (count > left() / width)
    return truncated("an array");
  to.elements = count;
  if (!isText) {
    to.bytes = bytes.subspan(position, count * width);
    position += count * width;
    return Status::success();
  }
  to.strings.resize(count);
  for (std::string_view &each : to.strings)
    TESSERA_RETURN_IF_ERROR(text(each, "a string"));
  return Status::success();
}

Status GgufReader::value(std::string_view key, GgufValue &to) {
  uint32_t kind = 0;
  TESSERA_RETURN_IF_ERROR(number(kind, "a value"));
  to.kindOf = GgufKind(kind);
  if (to.kindOf == GgufKind::Array)
    return array(key, to);
  if (to.kindOf == GgufKind::Text) {
    to.strings.resize(1);
    return text(to.strings[0], "a string");
  }
  size_t width = widthOf(to.kindOf);
  if (width == 0)
    return error("key {}: kind {} is none of GGUF's", quote(key), kind);
  if (left() < width)
    return truncated("a value");
  to.bytes = bytes.subspan(position, width);
  if (to.kindOf == GgufKind::Bool && to.bytes[0] > std::byte(1))
    return error("key {}: a bool must be 0 or 1", quote(key));
  position += width;
  return Status::success();
}

Status GgufReader::pair() {
  std::string_view key;
  TESSERA_RETURN_IF_ERROR(named(key, "a key"));
  auto [place, isNew] = file.values.try_emplace(key);
  if (!isNew)
    return error("duplicate key {}", quote(key));
  return value(key, place->second);
}

Status GgufReader::sizeOf(GgufTensor &tensor) const {
  auto info = ggufTypeInfo(tensor.type);
  if (!info)
    return error("tensor {} has the unknown type {}", quote(tensor.name),
                 static_cast<uint32_t>(tensor.type));
  uint64_t elements = 1;
  bool overflow = false;
  for (uint64_t dim : tensor.shape) {
    if (dim == 0)
      return error("tensor {} has a dimension of 0", quote(tensor.name));
    overflow |= __builtin_mul_overflow(elements, dim, &elements);
  }
  uint64_t blocks = elements / info->block;
  overflow |= __builtin_mul_overflow(blocks, info->bytes, &tensor.size);
  if (overflow)
    return error("the size of tensor {} overflows 64 bits", quote(tensor.name));
  if (tensor.shape.back() % info->block != 0)
    return error("tensor {} has rows of {} elements, which is not a multiple "
                 "of the block of {} ({})",
                 quote(tensor.name), tensor.shape.back(), info->name,
                 info->block);
  return Status::success();
}

Status GgufReader::tensor() {
  GgufTensor tensor;
  uint32_t rank = 0, type = 0;
  TESSERA_RETURN_IF_ERROR(named(tensor.name, "a tensor's name"));
  TESSERA_RETURN_IF_ERROR(number(rank, "a tensor's rank"));
  if (rank < 1 || rank > maxRank)
    return error("tensor {} has {} dimensions; 1 to {} are supported",
                 quote(tensor.name), rank, maxRank);
  tensor.shape.resize(rank);
  for (uint64_t &dim : tensor.shape)
    TESSERA_RETURN_IF_ERROR(number(dim, "a tensor's shape"));
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  TESSERA_RETURN_IF_ERROR(number(type, "a tensor's type"));
  TESSERA_RETURN_IF_ERROR(number(tensor.offset, "a tensor's offset"));
  tensor.type = GgufType(type);
  TESSERA_RETURN_IF_ERROR(sizeOf(tensor));
  std::string_view name = tensor.name;
  if (!file.byName.try_emplace(name, std::move(tensor)).second)
    return error("duplicate tensor {}", quote(name));
  return Status::success();
}

/// Converts offsets to offsets of the file, and checks that tensors are within
/// it and do not overlap.
Status GgufReader::place() {
  uint64_t alignment = 32;
  if (const GgufValue *given = file.find("general.alignment"))
    if (!given->get(alignment) || alignment == 0 || alignment > maxAlignment ||
        (alignment & (alignment - 1)) != 0)
      return error("key 'general.alignment' must be a power of two up to {}",
                   maxAlignment);
  uint64_t start = (position + alignment - 1) / alignment * alignment;
  std::vector<const GgufTensor *> ordered;
  for (auto &[name, tensor] : file.byName) {
    uint64_t end = 0;
    if (tensor.offset % alignment != 0)
      return error("tensor {} is at {}, which is not a multiple of {}",
                   quote(name), tensor.offset, alignment);
    if (__builtin_add_overflow(tensor.offset, start, &tensor.offset) ||
        __builtin_add_overflow(tensor.offset, tensor.size, &end) ||
        end > bytes.size())
      return error("tensor {} ends after the file's {} bytes; it is truncated "
                   "or damaged",
                   quote(name), bytes.size());
    ordered.push_back(&tensor);
  }
  std::ranges::sort(ordered, {}, &GgufTensor::offset);
  for (size_t i = 1; i < ordered.size(); ++i)
    if (ordered[i - 1]->offset + ordered[i - 1]->size > ordered[i]->offset)
      return error("tensors {} and {} overlap", quote(ordered[i - 1]->name),
                   quote(ordered[i]->name));
  return Status::success();
}

Status GgufReader::read() {
  uint32_t magic = 0;
  constexpr uint32_t expected = 0x46554747; // "GGUF"
  if (left() < sizeof magic || load<uint32_t>(bytes) != expected)
    return error("is not a GGUF file: it does not begin with \"GGUF\"");
  position = sizeof magic;
  TESSERA_RETURN_IF_ERROR(number(file.fileVersion, "the header"));
  if (file.fileVersion != 2 && file.fileVersion != 3)
    return error("GGUF version {} is not supported; 2 and 3 are, in "
                 "little-endian order",
                 file.fileVersion);
  uint64_t tensors = 0, pairs = 0;
  TESSERA_RETURN_IF_ERROR(number(tensors, "the header"));
  TESSERA_RETURN_IF_ERROR(number(pairs, "the header"));
  for (uint64_t i = 0; i < pairs; ++i)
    TESSERA_RETURN_IF_ERROR(pair());
  for (uint64_t i = 0; i < tensors; ++i)
    TESSERA_RETURN_IF_ERROR(tensor());
  return place();
}

StatusOr<GgufFile> GgufFile::parse(std::span<const std::byte> bytes,
                                   const std::string &where) {
  GgufFile file;
  file.path = where;
  file.contents = bytes;
  if (Status status = GgufReader(bytes, file).read(); !status.ok())
    return status;
  return file;
}

StatusOr<GgufFile> GgufFile::open(const std::string &path) {
  auto mapping = MappedFile::open(path);
  if (!mapping.ok())
    return mapping.status();
  auto file = parse(mapping->bytes(), path);
  if (file.ok())
    file->mapping = mapping.take();
  return file;
}

} // namespace tessera
