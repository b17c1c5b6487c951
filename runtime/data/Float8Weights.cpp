#include "runtime/data/Float8Weights.h"
#include "runtime/data/ShallowJson.h"
#include "runtime/support/Floats.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>

namespace tessera {
namespace {

constexpr std::size_t kMostConfigBytes = std::size_t(1) << 20;
/// Tables of narrower blocks would take more than what they are for.
constexpr uint64_t kLeastColumns = 16, kMostBlock = uint64_t(1) << 20;
constexpr float kLargest = 448; // of e4m3
/// What is decoded by way of one buffer.
constexpr uint64_t kElementsAtOnce = uint64_t(1) << 18;

constexpr bool isNan(std::byte bits) { return (unsigned(bits) & 127) == 127; }

/// Of each byte; those of NaNs are of no use.
constexpr std::array<float, 256> makeValues() {
  std::array<float, 256> values{};
  for (unsigned bits = 0; bits < 256; ++bits) {
    const unsigned exponent = bits >> 3 & 15, mantissa = bits & 7;
    float value = exponent ? float(8 + mantissa) : float(mantissa);
    value *= 0x1p-9f; // of the least exponent, which subnormals have too
    for (unsigned i = 1; i < exponent; ++i)
      value *= 2;
    values[bits] = bits & 128 ? -value : value;
  }
  return values;
}
constexpr std::array<float, 256> kValues = makeValues();

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

/// What all bytes stand for with one scale.
using Table = std::array<uint16_t, 256>;

void fill(Table &table, float scale) {
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] = toBf16(double(kValues[i]) * double(scale));
}

class Widened final : public TensorSource {
public:
  Widened(const SafetensorsModel::Location &weights,
          const SafetensorsModel::Location &scales, Float8Blocks blocks)
      : parts{weights, scales, blocks}, weights(parts.weights),
        scales(parts.scales), blocks(parts.blocks),
        columns(weights.entry->shape[1]),
        blocksInRow((columns + blocks.columns - 1) / blocks.columns) {}

  Status read(uint64_t offset, std::span<std::byte> out) const override {
    if (offset % 2 != 0 || out.size() % 2 != 0)
      return Status::error("{} is read by parts of elements; please report "
                           "this",
                           shownName(weights.entry->name));
    Rows rows{*this};
    uint64_t first = offset / 2;
    std::vector<std::byte> bytes;
    for (uint64_t at = 0; at < out.size() / 2; at += bytes.size()) {
      bytes.resize(std::min(kElementsAtOnce, out.size() / 2 - at));
      TESSERA_RETURN_IF_ERROR(
          weights.file->read(*weights.entry, first + at, bytes));
      TESSERA_RETURN_IF_ERROR(rows.widen(bytes, first + at, &out[2 * at]));
    }
    return Status::success();
  }

  const Float8Parts *float8() const override { return &parts; }

private:
  /// Elements one behind another, with the tables of the blocks they are in.
  struct Rows {
    const Widened &of;
    std::vector<Table> tables = std::vector<Table>(of.blocksInRow);
    uint64_t rowOfTables = std::numeric_limits<uint64_t>::max();

    Status widen(std::span<const std::byte> bytes, uint64_t first,
                 std::byte *to) {
      if (auto found = std::ranges::find_if(bytes, isNan); found != bytes.end())
        return of.notANumber(first + uint64_t(found - bytes.begin()));
      for (std::size_t i = 0; i < bytes.size();) {
        const uint64_t row = (first + i) / of.columns,
                       column = (first + i) % of.columns;
        if (row / of.blocks.rows != rowOfTables) {
          rowOfTables = row / of.blocks.rows;
          TESSERA_RETURN_IF_ERROR(of.makeTables(rowOfTables, tables));
        }
        const uint64_t block = column / of.blocks.columns,
                       end = std::min((block + 1) * of.blocks.columns,
                                      of.columns);
        const Table &table = tables[block];
        const std::size_t count =
            std::min<uint64_t>(end - column, bytes.size() - i);
        for (std::size_t k = i; k < i + count; ++k)
          std::memcpy(to + 2 * k, &table[std::size_t(bytes[k])], 2);
        i += count;
      }
      return Status::success();
    }
  };

  /// Those of a row of blocks.
  Status makeTables(uint64_t row, std::span<Table> tables) const {
    const SafetensorsType type = scales.entry->type;
    const uint64_t size = safetensorsBits(type) / 8, first = row * blocksInRow;
    std::vector<std::byte> bytes(blocksInRow * size);
    TESSERA_RETURN_IF_ERROR(
        scales.file->read(*scales.entry, first * size, bytes));
    float last = std::numeric_limits<float>::quiet_NaN();
    for (uint64_t i = 0; i < blocksInRow; ++i) {
      const float scale = scaleAt(type, &bytes[i * size]);
      if (!std::isfinite(bf16ToFloat(floatToBf16(scale * kLargest))))
        return Status::error("{} in '{}' has the scale {} at {}, with which "
                             "weights are not finite; the file is damaged, "
                             "give another copy of it",
                             shownName(scales.entry->name), scales.file->path(),
                             scale, first + i);
      if (i > 0 && scale == last)
        tables[i] = tables[i - 1];
      else
        fill(tables[i], scale);
      last = scale;
    }
    return Status::success();
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
    return Status::error("{} in '{}' is no number at [{}, {}]; the file is "
                         "damaged, give another copy of it",
                         shownName(weights.entry->name), weights.file->path(),
                         element / columns, element % columns);
  }

  const Float8Parts parts;
  const SafetensorsModel::Location &weights, &scales;
  const Float8Blocks &blocks;
  const uint64_t columns, blocksInRow;
};

/// A pair of sizes: [128, 128], or as text "128x128".
std::optional<Float8Blocks> blocksOf(const nlohmann::json &pair) {
  Float8Blocks blocks{0, 0};
  if (pair.is_string())
    std::sscanf(pair.get_ref<const std::string &>().c_str(),
                "%" SCNu64 "x%" SCNu64, &blocks.rows, &blocks.columns);
  else if (pair.is_array() && pair.size() == 2 &&
           pair[0].is_number_unsigned() && pair[1].is_number_unsigned())
    blocks = {pair[0].get<uint64_t>(), pair[1].get<uint64_t>()};
  const bool isGood = blocks.rows >= 1 && blocks.rows <= kMostBlock &&
                      blocks.columns >= kLeastColumns &&
                      blocks.columns <= kMostBlock;
  return isGood ? std::optional(blocks) : std::nullopt;
}

/// The member of that name, or null.
const nlohmann::json &member(const nlohmann::json &of, const char *name) {
  static const nlohmann::json none;
  auto found = of.is_object() ? of.find(name) : of.end();
  return found == of.end() ? none : *found;
}

} // namespace

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
  if (auto blocks = blocksOf(member(how, "weight_block_size")))
    return blocks;
  const nlohmann::json &weights =
      member(member(member(how, "config_groups"), "group_0"), "weights");
  if (auto blocks = blocksOf(member(weights, "block_structure")))
    return blocks;
  return blocksOf({1u, member(weights, "group_size")});
}

bool isFloat8Matrix(const SafetensorsEntry &entry) {
  return entry.type == SafetensorsType::f8_e4m3 && entry.shape.size() == 2;
}

static std::string shownShape(const std::vector<uint64_t> &shape) {
  constexpr std::size_t kMost = 4;
  return shape.size() > kMost ? fmt::format("{} dimensions", shape.size())
                              : fmt::format("{}", fmt::join(shape, ", "));
}

/// What each scale is for, by the shape of the scales.
static StatusOr<Float8Blocks>
blocksBy(const SafetensorsModel::Location &weights,
         const SafetensorsModel::Location &scales,
         const std::optional<Float8Blocks> &blocks) {
  const uint64_t rows = weights.entry->shape[0],
                 columns = weights.entry->shape[1];
  std::vector<uint64_t> shape = scales.entry->shape;
  auto ratio = [](uint64_t size, uint64_t block) {
    return (size + block - 1) / block;
  };
  if (std::ranges::all_of(shape, [](uint64_t size) { return size == 1; }) &&
      shape.size() <= 2)
    return Float8Blocks{std::max<uint64_t>(rows, 1),
                        std::max<uint64_t>(columns, 1)};
  if (shape == std::vector{rows} || shape == std::vector<uint64_t>{rows, 1})
    return Float8Blocks{1, std::max<uint64_t>(columns, 1)};
  if (blocks && shape == std::vector{ratio(rows, blocks->rows),
                                     ratio(columns, blocks->columns)})
    return *blocks;
  return Status::error(
      "{} in '{}' has the shape [{}]; for weights [{}, {}] it must be [1], "
      "[{}, 1] or {}",
      shownName(scales.entry->name), scales.file->path(), shownShape(shape),
      rows, columns, rows,
      blocks ? fmt::format("[{}, {}], as config.json says that blocks are "
                           "{} x {}",
                           ratio(rows, blocks->rows),
                           ratio(columns, blocks->columns), blocks->rows,
                           blocks->columns)
             : "what config.json beside it says of blocks (weight_block_size "
               "of quantization_config), which says nothing");
}

StatusOr<SafetensorsEntry>
widenedFloat8(const SafetensorsModel::Location &weights,
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
  entry.source = std::make_shared<Widened>(weights, scales, *by);
  return entry;
}

Status SafetensorsModel::widenFloat8(const std::string &directory) {
  std::optional<Float8Blocks> blocks;
  std::vector<std::string> beside;
  for (auto &[name, location] : byName) {
    if (!isFloat8Matrix(*location.entry))
      continue;
    auto scales = byName.find(name + "_scale_inv");
    if (scales == byName.end())
      scales = byName.find(name + "_scale");
    if (scales == byName.end())
      continue; // nobody may ask for it
    if (beside.empty()) {
      auto read = readFloat8Blocks(directory);
      if (!read.ok())
        return read.status();
      blocks = *read;
      if (blocks)
        readAs =
            fmt::format("blocks of {} x {}", blocks->rows, blocks->columns);
    }
    auto entry = widenedFloat8(location, scales->second, blocks);
    if (!entry.ok())
      return entry.status();
    widened.push_back(std::make_unique<SafetensorsEntry>(entry.take()));
    location.entry = widened.back().get();
    beside.push_back(scales->first);
    // Those of activations, which are not rounded here.
    const std::string module = name.substr(0, name.rfind('.') + 1);
    for (const char *of : {"input_scale", "activation_scale", "input_scale_ub"})
      beside.push_back(module + of);
  }
  for (const std::string &each : beside)
    byName.erase(each);
  return Status::success();
}

} // namespace tessera
