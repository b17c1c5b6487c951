#include "hardware/Gpus.h"

namespace tessera::hardware {
namespace {

constexpr double kTera = 1e12;

// A name that is a prefix of others comes after them.
constexpr Chip kChips[] = {
    {"B200", {2250 * kTera, 1125 * kTera, 75 * kTera}},
    {"GH200", {989 * kTera, 494 * kTera, 67 * kTera}},
    {"H200", {989 * kTera, 494 * kTera, 67 * kTera}},
    {"H100 PCIe", {756 * kTera, 378 * kTera, 51 * kTera}},
    {"H100", {989 * kTera, 494 * kTera, 67 * kTera}},
    {"A100", {312 * kTera, 156 * kTera, 19.5 * kTera}},
    {"L40S", {362 * kTera, 183 * kTera, 91.6 * kTera}},
    {"A10", {125 * kTera, 62.5 * kTera, 31.2 * kTera}},
    {"RTX 4090", {165.2 * kTera, 82.6 * kTera, 82.6 * kTera}},
    {"RTX 3090", {71 * kTera, 35.6 * kTera, 35.6 * kTera}},
};

} // namespace

const Chip *findChip(std::string_view description) {
  for (const Chip &chip : kChips)
    if (description.find(chip.name) != description.npos)
      return &chip;
  return nullptr;
}

} // namespace tessera::hardware
