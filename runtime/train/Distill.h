// What a step program says of learning from a teacher: the output `distill` of
// @train_step, f32 [kDistillColumns], or one fewer without cross-entropy; means
// over the unmasked tokens of the step. The compiler writes the columns, the
// runtime prints them.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

inline constexpr const char *kDistillOutput = "distill";

/// With p of the teacher and q of the model before the step, both at the
/// recipe's temperature and over the teacher's most probable tokens and all
/// others as one class.
enum class DistillColumn : std::uint8_t {
  kl = 0, ///< of the recipe's divergence, in nats
  /// Tokens where of the teacher's most probable tokens the model has the same
  /// first one.
  agreement = 1,
  teacherEntropy = 2,
  teacherMass = 3, ///< what p gives to its most probable tokens
  studentMass = 4, ///< what q gives to them
  crossEntropy = 5,
};

inline constexpr std::size_t kDistillColumns = 6;

/// As metrics.jsonl calls them.
inline constexpr std::array<std::string_view, kDistillColumns>
    kDistillColumnNames = {"kl",           "agreement",    "teacher_entropy",
                           "teacher_mass", "student_mass", "cross_entropy"};

} // namespace tessera
