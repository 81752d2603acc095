// Built once for each instruction set: the flags and SOOTHSAY_ISA come from CMake.
#include "attention.hpp"
#include "kernels.hpp"
#include "probe.hpp"
#include "product.hpp"
#include "requantise.hpp"
#include "rows.hpp"
#include "sampling.hpp"

#define TEXT_OF(x) #x
#define NAME_OF(x) TEXT_OF(x)
#define JOIN_OF(a, b) a##b
#define JOIN(a, b) JOIN_OF(a, b)

namespace soothsay {

const Kernels& JOIN(SOOTHSAY_ISA, _kernels)() {
    using namespace SOOTHSAY_ISA;
    static constexpr Kernels kernels = {
        NAME_OF(SOOTHSAY_ISA), quantise,  product,   rms_norm,    add_row, swiglu,
        rotate,                scale_row, store_key, store_value, attend,  combine,
        requantise,            most_of,   weigh,     weigh_near,  may_beat, read,
        dot_products,
    };
    return kernels;
}

}  // namespace soothsay
