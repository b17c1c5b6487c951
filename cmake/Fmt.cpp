// fmt compiled in: Debian has it as a shared library only, which a machine that
// trains may lack, and header-only it doubles the time of every compilation.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
// What its headers declare and leave to the library.
template auto dragonbox::to_decimal(float) noexcept
    -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept
    -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
} // namespace detail
FMT_END_NAMESPACE
