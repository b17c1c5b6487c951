#include "runtime/data/Float8Weights.h"
#include "runtime/data/ShallowJson.h"
#include "runtime/support/Floats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

namespace tessera {
namespace {

constexpr std::size_t kMostConfigBytes = std::size_t(1) << 20;
/// Elements that are decoded through one buffer.
constexpr uint64_t kElementsAtOnce = uint64_t(1) << 18;

/// Of each byte; those of NaNs are of no use.
constexpr std::array<float, 256> kValues = [] {
  std::array<float, 256> values{};
  for (unsigned bits = 0; bits < 256; ++bits)
    values[bits] = e4m3ToFloat(uint8_t(bits));
  return values;
}();

/// The number of blocks of a dimension; the last may be shorter.
constexpr uint64_t blocksIn(uint64_t size, uint64_t block) {
  return size / block + (size % block != 0);
}

/// The nearest bf16, half to even. To f32 it is rounded to odd, so that what is
/// lost there still says to which side the second rounding goes.
uint16_t toBf16(double exact) {
  const auto nearest = float(exact);
  auto bits = std::bit_cast<uint32_t>(nearest);
  if (double(nearest) != exact) {
    bits -= std::fabs(double(nearest)) > std::fabs(exact);
    bits |= 1;
  }
  return floatToBf16(std::bit_cast<float>(bits));
}

/// The bf16 value of every byte with one scale.
using Table = std::array<uint16_t, 256>;

void fill(Table &table, float scale) {
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] = toBf16(double(kValues[i]) * double(scale));
}

class Dequantized final : public TensorSource {
public:
  Dequantized(const SafetensorsModel::Location &weights,
              const SafetensorsModel::Location &scales, Float8Blocks blocks)
      : parts{weights, scales, blocks}, weights(parts.weights),
        scales(parts.scales), blocks(parts.blocks),
        columns(weights.entry->shape[1]),
        blocksInRow(blocksIn(columns, blocks.columns)) {}

  Status read(uint64_t offset, std::span<std::byte> out) const override {
    if (offset % 2 != 0 || out.size() % 2 != 0)
      return Status::error("{} is read by parts of elements; please report "
                           "this",
                           shownName(weights.entry->name));
    uint64_t first = offset / 2;
    Tables tables;
    std::vector<std::byte> bytes;
    for (uint64_t at = 0; at < out.size() / 2; at += bytes.size()) {
      bytes.resize(std::min(kElementsAtOnce, out.size() / 2 - at));
      TESSERA_RETURN_IF_ERROR(
          weights.file->read(*weights.entry, first + at, bytes));
      TESSERA_RETURN_IF_ERROR(
          dequantize(bytes, first + at, &out[2 * at], tables));
    }
    return Status::success();
  }

  const Float8Parts *float8() const override { return &parts; }

private:
  /// Of adjacent blocks in a row of blocks.
  struct Tables {
    uint64_t row = 0, first = 0;
    std::vector<Table> of;
    bool have(uint64_t wantedRow, uint64_t begin, uint64_t end) const {
      return row == wantedRow && begin >= first && end <= first + of.size();
    }
  };

  /// Consecutive elements in row-major order.
  Status dequantize(std::span<const std::byte> bytes, uint64_t first,
                    std::byte *to, Tables &tables) const {
    auto isNan = [](std::byte bits) { return isE4m3Nan(uint8_t(bits)); };
    if (auto found = std::ranges::find_if(bytes, isNan); found != bytes.end())
      return notANumber(first + uint64_t(found - bytes.begin()));
    // A table is worth its work where it is used for as many elements.
    const uint64_t rows =
                       std::min(blocks.rows, blocksIn(bytes.size(), columns)),
                   ofBlock = rows * std::min(blocks.columns, columns);
    const bool byTables = ofBlock >= kValues.size();
    for (std::size_t i = 0; i < bytes.size();) {
      const uint64_t row = (first + i) / columns,
                     column = (first + i) % columns;
      const std::size_t count =
          std::min<uint64_t>(columns - column, bytes.size() - i);
      auto part = bytes.subspan(i, count);
      TESSERA_RETURN_IF_ERROR(
          byTables ? dequantizeByTables(part, row, column, to + 2 * i, tables)
                   : dequantizeEach(part, row, column, to + 2 * i));
      i += count;
    }
    return Status::success();
  }

  /// Calls `each` with the parts of a row's elements from `column` on that are
  /// in one block, and which of the row's blocks that is.
  template <typename Each>
  void forBlocks(std::span<const std::byte> bytes, uint64_t column,
                 Each each) const {
    for (std::size_t i = 0; i < bytes.size();) {
      const uint64_t block = (column + i) / blocks.columns,
                     left = blocks.columns - (column + i) % blocks.columns;
      const std::size_t count = std::min<uint64_t>(left, bytes.size() - i);
      each(block, i, i + count);
      i += count;
    }
  }

  Status dequantizeEach(std::span<const std::byte> bytes, uint64_t row,
                        uint64_t column, std::byte *to) const {
    const uint64_t begin = column / blocks.columns,
                   end = (column + bytes.size() - 1) / blocks.columns + 1;
    auto read = readScales(row / blocks.rows, begin, end);
    if (!read.ok())
      return read.status();
    forBlocks(bytes, column, [&](uint64_t block, std::size_t i, std::size_t e) {
      const double scale = (*read)[block - begin];
      for (; i < e; ++i) {
        const uint16_t value = toBf16(kValues[std::size_t(bytes[i])] * scale);
        std::memcpy(to + 2 * i, &value, 2);
      }
    });
    return Status::success();
  }

  Status dequantizeByTables(std::span<const std::byte> bytes, uint64_t row,
                            uint64_t column, std::byte *to,
                            Tables &tables) const {
    const uint64_t begin = column / blocks.columns,
                   end = (column + bytes.size() - 1) / blocks.columns + 1;
    if (!tables.have(row / blocks.rows, begin, end))
      TESSERA_RETURN_IF_ERROR(
          makeTables(row / blocks.rows, begin, end, tables));
    forBlocks(bytes, column, [&](uint64_t block, std::size_t i, std::size_t e) {
      const Table &table = tables.of[block - tables.first];
      for (; i < e; ++i)
        std::memcpy(to + 2 * i, &table[std::size_t(bytes[i])], 2);
    });
    return Status::success();
  }

  /// Of blocks [begin, end) of a row of blocks.
  Status makeTables(uint64_t row, uint64_t begin, uint64_t end,
                    Tables &tables) const {
    auto read = readScales(row, begin, end);
    if (!read.ok())
      return read.status();
    tables.row = row;
    tables.first = begin;
    tables.of.resize(end - begin);
    for (std::size_t i = 0; i < read->size(); ++i)
      if (i > 0 && (*read)[i] == (*read)[i - 1])
        tables.of[i] = tables.of[i - 1];
      else
        fill(tables.of[i], (*read)[i]);
    return Status::success();
  }

  StatusOr<std::vector<float>> readScales(uint64_t row, uint64_t begin,
                                          uint64_t end) const {
    const SafetensorsType type = scales.entry->type;
    const uint64_t size = safetensorsBits(type) / 8,
                   first = row * blocksInRow + begin;
    std::vector<std::byte> bytes((end - begin) * size);
    TESSERA_RETURN_IF_ERROR(
        scales.file->read(*scales.entry, first * size, bytes));
    std::vector<float> values(end - begin);
    for (uint64_t i = 0; i < values.size(); ++i) {
      values[i] = scaleAt(type, &bytes[i * size]);
      if (!std::isfinite(bf16ToFloat(floatToBf16(values[i] * kLargestE4m3))))
        return Status::error("{} in '{}' has the scale {} at {}, with which "
                             "weights are not finite; the file is damaged, "
                             "give another copy of it",
                             shownName(scales.entry->name), scales.file->path(),
                             values[i], first + i);
    }
    return values;
  }

  static float scaleAt(SafetensorsType type, const std::byte *from) {
    float wide;
    uint16_t half;
    if (type == SafetensorsType::f32) {
      std::memcpy(&wide, from, sizeof wide);
      return wide;
    }
    std::memcpy(&half, from, sizeof half);
    return type == SafetensorsType::bf16 ? bf16ToFloat(half) : f16ToFloat(half);
  }

  Status notANumber(uint64_t element) const {
    return Status::error("{} in '{}' is NaN at [{}, {}]; the file is "
                         "damaged, give another copy of it",
                         shownName(weights.entry->name), weights.file->path(),
                         element / columns, element % columns);
  }

  const Float8Parts parts;
  const SafetensorsModel::Location &weights, &scales;
  const Float8Blocks &blocks;
  const uint64_t columns, blocksInRow;
};

/// The member of that name, or null.
const nlohmann::json &member(const nlohmann::json &of, const char *name) {
  static const nlohmann::json none;
  auto found = of.is_object() ? of.find(name) : of.end();
  return found == of.end() ? none : *found;
}

/// Those of a value of config.json; an error where they are none.
StatusOr<std::optional<Float8Blocks>> blocksAt(const std::string &path,
                                               std::string_view key,
                                               const nlohmann::json &value) {
  if (auto blocks = float8BlocksOf(value))
    return blocks;
  return Status::error("'{}': key 'quantization_config.{}': {}", path, key,
                       kFloat8BlocksWanted);
}

/// The block size in quantization_config of a directory's config.json; none if
/// the setting or the file is absent.
StatusOr<std::optional<Float8Blocks>>
readFloat8Blocks(const std::string &directory) {
  const std::string path =
      (std::filesystem::path(directory) / "config.json").string();
  std::error_code code;
  if (!std::filesystem::exists(path, code))
    return std::optional<Float8Blocks>();
  auto text = readFile(path, kMostConfigBytes);
  if (!text.ok())
    return text.status();
  const nlohmann::json config = parseShallowJson(*text);
  const nlohmann::json &how = member(config, "quantization_config");
  if (const auto &size = member(how, "weight_block_size"); !size.is_null())
    return blocksAt(path, "weight_block_size", size);
  const nlohmann::json &weights =
      member(member(member(how, "config_groups"), "group_0"), "weights");
  const nlohmann::json &strategy = member(weights, "strategy");
  auto mayBe = [&](const char *name) {
    return strategy.is_null() || strategy == name;
  };
  const std::string prefix = "config_groups.group_0.weights.";
  if (const auto &structure = member(weights, "block_structure");
      !structure.is_null() && mayBe("block"))
    return blocksAt(path, prefix + "block_structure", structure);
  // -1 is a scale a row.
  if (const auto &group = member(weights, "group_size");
      !group.is_null() && group != -1 && mayBe("group"))
    return blocksAt(path, prefix + "group_size", {1u, group});
  return std::optional<Float8Blocks>();
}

/// Whether it is a matrix of such weights, if it has scales.
bool isFloat8Matrix(const SafetensorsEntry &entry) {
  return entry.type == SafetensorsType::f8_e4m3 && entry.shape.size() == 2;
}

std::string shownShape(const std::vector<uint64_t> &shape) {
  constexpr std::size_t kMost = 4;
  return shape.size() > kMost ? fmt::format("{} dimensions", shape.size())
                              : fmt::format("{}", fmt::join(shape, ", "));
}

/// What each scale is for, by the shape of the scales.
StatusOr<Float8Blocks> blocksBy(const SafetensorsModel::Location &weights,
                                const SafetensorsModel::Location &scales,
                                const std::optional<Float8Blocks> &blocks) {
  const uint64_t rows = weights.entry->shape[0],
                 columns = weights.entry->shape[1];
  std::vector<uint64_t> shape = scales.entry->shape;
  if (std::ranges::all_of(shape, [](uint64_t size) { return size == 1; }) &&
      shape.size() <= 2)
    return Float8Blocks{std::max<uint64_t>(rows, 1),
                        std::max<uint64_t>(columns, 1)};
  if (shape == std::vector{rows} || shape == std::vector<uint64_t>{rows, 1})
    return Float8Blocks{1, std::max<uint64_t>(columns, 1)};
  if (blocks && shape == std::vector{blocksIn(rows, blocks->rows),
                                     blocksIn(columns, blocks->columns)})
    return *blocks;
  return Status::error(
      "{} in '{}' has the shape [{}]; for weights [{}, {}] it must be [1], "
      "[{}, 1] or {}",
      shownName(scales.entry->name), scales.file->path(), shownShape(shape),
      rows, columns, rows,
      blocks ? fmt::format("[{}, {}], as config.json says that blocks are "
                           "{} x {}",
                           blocksIn(rows, blocks->rows),
                           blocksIn(columns, blocks->columns), blocks->rows,
                           blocks->columns)
             : "that of the blocks of config.json (weight_block_size of "
               "quantization_config), which is absent");
}

/// The weights as bf16. The files must outlive it.
StatusOr<SafetensorsEntry>
dequantizedFloat8(const SafetensorsModel::Location &weights,
                  const SafetensorsModel::Location &scales,
                  const std::optional<Float8Blocks> &blocks) {
  const SafetensorsType type = scales.entry->type;
  if (type != SafetensorsType::f32 && type != SafetensorsType::bf16 &&
      type != SafetensorsType::f16)
    return Status::error("{} in '{}' is {}; scales must be F32, BF16 or F16",
                         shownName(scales.entry->name), scales.file->path(),
                         safetensorsName(type));
  auto by = blocksBy(weights, scales, blocks);
  if (!by.ok())
    return by.status();
  SafetensorsEntry entry = *weights.entry;
  entry.type = SafetensorsType::bf16;
  entry.end = entry.begin + 2 * (entry.end - entry.begin);
  entry.source = std::make_shared<Dequantized>(weights, scales, *by);
  return entry;
}

} // namespace

Status SafetensorsModel::dequantizeFloat8(const std::string &directory) {
  std::optional<Float8Blocks> blocks;
  std::vector<std::string> scaleNames;
  for (auto &[name, location] : byName) {
    if (!isFloat8Matrix(*location.entry))
      continue;
    auto scales = byName.find(name + "_scale_inv");
    if (scales == byName.end())
      scales = byName.find(name + "_scale");
    if (scales == byName.end())
      continue; // an error only if it is read
    if (scaleNames.empty()) {
      auto read = readFloat8Blocks(directory);
      if (!read.ok())
        return read.status();
      blocks = *read;
      if (blocks)
        readAs =
            fmt::format("blocks of {} x {}", blocks->rows, blocks->columns);
    }
    auto entry = dequantizedFloat8(location, scales->second, blocks);
    if (!entry.ok())
      return entry.status();
    dequantized.push_back(std::make_unique<SafetensorsEntry>(entry.take()));
    location.entry = dequantized.back().get();
    scaleNames.push_back(scales->first);
    // Those of activations, which are not rounded here.
    const std::string module = name.substr(0, name.rfind('.') + 1);
    for (const char *of : {"input_scale", "activation_scale", "input_scale_ub"})
      scaleNames.push_back(module + of);
  }
  for (const std::string &each : scaleNames)
    byName.erase(each);
  return Status::success();
}

} // namespace tessera
