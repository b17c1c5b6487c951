// Reads the JSON header as an event stream: no tree is built, so a hostile
// header costs no more memory than the tensors it really names.
#include "runtime/data/Safetensors.h"
#include "runtime/data/ShallowJson.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include <nlohmann/json.hpp>

namespace tessera {
namespace {

/// The fields of a tensor entry, in the order in which the reference also
/// accepts them as a bare array.
enum Field { typeField, shapeField, offsetsField, fieldCount, otherField };
constexpr std::array<std::string_view, fieldCount> kFields = {"dtype", "shape",
                                                              "data_offsets"};

/// The reference refuses the 128th nested container.
constexpr unsigned kMaxDepth = 127;

/// nlohmann's SAX interface; every callback returns false to stop.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
public:
  std::vector<SafetensorsEntry> entries; // in file order, repeats included
  std::map<std::string, std::string> metadata;
  std::string error;

  bool null() override {
    if (place() == Place::top && name == "__metadata__")
      return true;
    if (place() == Place::typeMap)
      return setType(variant);
    return scalar("null");
  }
  bool boolean(bool) override { return scalar("a boolean"); }
  bool number_integer(number_integer_t) override {
    return scalar("a negative number");
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place() == Place::list)
      return addToList(value);
    return scalar("a number");
  }
  bool number_float(number_float_t, const string_t &) override {
    return scalar("a fractional or too large number");
  }
  bool string(string_t &value) override {
    if (place() == Place::metadata) {
      metadata[metadataKey] = std::move(value);
      return true;
    }
    if (place() == Place::entry && currentField() == typeField)
      return setType(value) && nextField();
    return scalar("a string");
  }
  bool binary(binary_t &) override { return fail("binary data"); }

  bool start_object(std::size_t) override {
    if (!enter())
      return false;
    if (ignoring)
      return true;
    switch (place()) {
    case Place::outside:
      return push(Place::top);
    case Place::top:
      if (name == "__metadata__")
        return push(Place::metadata);
      return startEntry(Place::entry, /*bare=*/false);
    case Place::entry:
      if (currentField() == typeField)
        return startTypeMap();
      if (currentField() == otherField)
        return ignore();
      return wrong("an object");
    default:
      return wrong("an object");
    }
  }
  bool key(string_t &value) override {
    if (ignoring)
      return true;
    switch (place()) {
    case Place::top:
      name = std::move(value);
      if (name == "__metadata__" && std::exchange(sawMetadata, true))
        return fail("the key '__metadata__' is there twice");
      return true;
    case Place::metadata:
      metadataKey = std::move(value);
      return true;
    case Place::entry:
      return startField(value);
    case Place::typeMap:
      if (std::exchange(sawVariant, true))
        return wrong("an object of several keys");
      variant = std::move(value);
      return true;
    default:
      return wrong("an object with keys");
    }
  }
  bool end_object() override {
    leave();
    if (ignoring)
      return endIgnored();
    Place ended = stack.back();
    stack.pop_back();
    if (ended == Place::entry)
      return endEntry();
    if (ended == Place::typeMap)
      return sawVariant ? nextField() : wrong("an empty object");
    return true;
  }
  bool start_array(std::size_t) override {
    if (!enter())
      return false;
    if (ignoring)
      return true;
    if (place() == Place::top && name != "__metadata__")
      return startEntry(Place::entry, /*bare=*/true);
    if (place() == Place::entry && currentField() == otherField && !bareEntry)
      return ignore();
    if (place() == Place::entry &&
        (currentField() == shapeField || currentField() == offsetsField))
      return push(Place::list);
    return wrong("an array");
  }
  bool end_array() override {
    leave();
    if (ignoring)
      return endIgnored();
    Place ended = stack.back();
    stack.pop_back();
    if (ended == Place::list) {
      if (currentField() == offsetsField && offsetCount != 2)
        return fail("{}: data_offsets needs 2 numbers, got: {}",
                    shownName(name), offsetCount);
      return nextField();
    }
    return endEntry();
  }
  bool parse_error(std::size_t position, const std::string &,
                   const nlohmann::json::exception &) override {
    return fail("header is not valid json at byte {}",
                8 + (position ? position - 1 : 0));
  }

private:
  enum class Place { outside, top, metadata, entry, list, typeMap };

  Place place() const { return stack.back(); }
  bool push(Place next) {
    stack.push_back(next);
    return true;
  }
  template <typename... Args>
  bool fail(fmt::format_string<Args...> format, Args &&...args) {
    error = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }
  bool wrong(std::string_view found) {
    switch (place()) {
    case Place::outside:
      return fail("header must be a json object, got: {}", found);
    case Place::metadata:
      return fail("__metadata__ {} must be a string, got: {}",
                  shownName(metadataKey), found);
    case Place::entry:
    case Place::list:
    case Place::typeMap:
      if (currentField() < fieldCount)
        return fail("{}: {} cannot be or hold {}", shownName(name),
                    kFields[currentField()], found);
      return fail("{} has more than three items", shownName(name));
    default:
      return fail("{} cannot be {}", shownName(name), found);
    }
  }
  /// A value without structure that no rule above took.
  bool scalar(std::string_view found) {
    if (ignoring)
      return true;
    if (place() == Place::entry && !bareEntry && currentField() == otherField)
      return nextField();
    return wrong(found);
  }

  bool enter() {
    if (++depth > kMaxDepth)
      return fail("header nests deeper than {} levels", kMaxDepth);
    return true;
  }
  void leave() { --depth; }
  bool ignore() {
    ignoring = true;
    ignoreDepth = depth - 1;
    return true;
  }
  bool endIgnored() {
    if (depth > ignoreDepth)
      return true;
    ignoring = false;
    return nextField();
  }

  bool startEntry(Place next, bool bare) {
    current = SafetensorsEntry();
    current.name = name;
    current.begin = current.end = 0;
    seen = 0;
    offsetCount = 0;
    bareEntry = bare;
    field = bare ? typeField : otherField;
    return push(next);
  }
  int currentField() const { return field; }
  bool startField(const std::string &text) {
    field =
        int(std::find(kFields.begin(), kFields.end(), text) - kFields.begin());
    if (field == fieldCount) {
      field = otherField;
      return true;
    }
    if (seen & (1u << field))
      return fail("{} has the field '{}' twice", shownName(name), text);
    return true;
  }
  bool nextField() {
    if (field < fieldCount)
      seen |= 1u << field;
    if (bareEntry)
      field = field + 1 < fieldCount ? field + 1 : int(otherField);
    return true;
  }
  bool startTypeMap() {
    sawVariant = false;
    return push(Place::typeMap);
  }
  bool setType(const std::string &text) {
    std::optional<SafetensorsType> type = safetensorsType(text);
    if (!type)
      return fail("{} has the unknown dtype {}", shownName(name),
                  shownName(text));
    current.type = *type;
    return true;
  }
  bool addToList(uint64_t value) {
    if (field == shapeField) {
      current.shape.push_back(value);
      return true;
    }
    if (offsetCount < 2)
      (offsetCount == 0 ? current.begin : current.end) = value;
    ++offsetCount;
    return true;
  }
  bool endEntry() {
    for (int each = 0; each < fieldCount; ++each)
      if (!(seen & (1u << each)))
        return fail("{} has no field '{}'", shownName(name), kFields[each]);
    entries.push_back(std::move(current));
    return true;
  }

  std::vector<Place> stack = {Place::outside};
  unsigned depth = 0;
  bool ignoring = false;
  unsigned ignoreDepth = 0;
  bool sawMetadata = false, sawVariant = false, bareEntry = false;
  int field = otherField;
  unsigned seen = 0, offsetCount = 0;
  std::string name, metadataKey, variant;
  SafetensorsEntry current;
};

/// Bytes of a tensor, or nothing if the product overflows 64 bits or the
/// packed elements do not fill whole bytes.
Status tensorBytes(const SafetensorsEntry &entry, uint64_t &bytes) {
  uint64_t elements = 1;
  bool overflow = false;
  for (uint64_t dim : entry.shape)
    overflow |= __builtin_mul_overflow(elements, dim, &elements);
  uint64_t bits = 0;
  overflow |= __builtin_mul_overflow(
      elements, uint64_t(safetensorsBits(entry.type)), &bits);
  if (overflow)
    return Status::error("{}: the size of its shape overflows 64 bits",
                         shownName(entry.name));
  if (bits % 8 != 0)
    return Status::error("{}: {} elements of {} do not fill whole bytes",
                         shownName(entry.name), elements,
                         safetensorsName(entry.type));
  bytes = bits / 8;
  return Status::success();
}

/// Keeps the last entry of every name, as the reference's hash map does.
void dropRepeats(std::vector<SafetensorsEntry> &entries) {
  std::map<std::string_view, std::size_t> last;
  for (std::size_t index = 0; index < entries.size(); ++index)
    last[entries[index].name] = index;
  if (last.size() == entries.size())
    return;
  std::vector<std::size_t> kept;
  for (const auto &[name, index] : last)
    kept.push_back(index);
  last.clear();
  std::vector<SafetensorsEntry> unique;
  for (std::size_t index : kept)
    unique.push_back(std::move(entries[index]));
  entries = std::move(unique);
}

Status checkOffsets(const SafetensorsHeader &header, uint64_t fileSize) {
  uint64_t position = 0;
  for (const SafetensorsEntry &entry : header.tensors) {
    if (entry.begin != position || entry.end < entry.begin)
      return Status::error(
          "{} is at bytes {} to {}, but the tensor before it ends at {}",
          shownName(entry.name), entry.begin, entry.end, position);
    uint64_t bytes = 0;
    TESSERA_RETURN_IF_ERROR(tensorBytes(entry, bytes));
    if (entry.end - entry.begin != bytes)
      return Status::error("{} has {} bytes, but its shape and dtype {} "
                           "need {}",
                           entry.name, entry.end - entry.begin,
                           safetensorsName(entry.type), bytes);
    position = entry.end;
  }
  if (position != fileSize - header.dataStart)
    return Status::error("tensors need {} bytes after the header, but the file "
                         "has {}; it is truncated or not a safetensors file",
                         position, fileSize - header.dataStart);
  return Status::success();
}

} // namespace

StatusOr<SafetensorsHeader> parseSafetensors(std::span<const std::byte> head,
                                             uint64_t fileSize) {
  if (fileSize < 8 || head.size() < 8)
    return Status::error("{} bytes are too few for a safetensors file",
                         fileSize);
  uint64_t length = 0;
  std::memcpy(&length, head.data(), 8); // little-endian, as all our targets
  if (length > kSafetensorsMaxHeader)
    return Status::error("header length {} at byte 0 exceeds the limit of {}",
                         length, kSafetensorsMaxHeader);
  if (length > fileSize - 8 || length > head.size() - 8)
    return Status::error("header length {} at byte 0 exceeds the file's {} "
                         "bytes; it is truncated or not a safetensors file",
                         length, fileSize);
  std::string_view text(reinterpret_cast<const char *>(head.data()) + 8,
                        length);
  // The parser takes a NUL for the end of its input and skips a byte order
  // mark; in a header neither is JSON.
  if (text.find('\0') != text.npos || text.starts_with("\xef\xbb\xbf"))
    return Status::error("header holds a NUL byte or a byte order mark, which "
                         "is not valid json");
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader))
    return Status::error("{}", reader.error);

  SafetensorsHeader header;
  header.dataStart = 8 + length;
  header.metadata = std::move(reader.metadata);
  header.tensors = std::move(reader.entries);
  dropRepeats(header.tensors);
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const auto &a, const auto &b) {
              return std::tie(a.begin, a.end, a.name) <
                     std::tie(b.begin, b.end, b.name);
            });
  TESSERA_RETURN_IF_ERROR(checkOffsets(header, fileSize));
  for (std::size_t index = 0; index < header.tensors.size(); ++index)
    header.byName[header.tensors[index].name] = index;
  return header;
}

} // namespace tessera
