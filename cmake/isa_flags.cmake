# The only place with ISA flags. They go on kernel files alone, by suffix, so that no code compiled for
# a better CPU can end up in a baseline function.
#
# GCC's scheduling before register allocation lengthens live ranges until the 8 x 8 tiles of the dot-product
# kernels need moves and spills (PV inner loop in bench/mca: 35.6 cycles with it, 32.1 without). Its choice of
# induction variables breaks up the adjacent loads and stores of the index softmax (22.3 and 19.6 cycles).
function(intattention_set_isa_flags)
  foreach(file IN LISTS ARGN)
    set(options "")
    if(file MATCHES "_avx2\\.cpp$")
      list(APPEND options -mavx2 -mf16c -mfma)
    elseif(file MATCHES "_avx512\\.cpp$")
      # GCC 12 warns about the deliberately undefined operand inside its own avx512fintrin.h.
      list(APPEND options -mavx2 -mf16c -mfma -mavx512f -Wno-uninitialized -Wno-maybe-uninitialized)
    elseif(file MATCHES "_avx512vnni\\.cpp$")
      list(APPEND options -mavx2 -mf16c -mfma -mavx512f -mavx512bw -mavx512vl -mavx512vnni -Wno-uninitialized
           -Wno-maybe-uninitialized)
    elseif(file MATCHES "_avxvnni\\.cpp$")
      list(APPEND options -mavx2 -mf16c -mfma -mavxvnni)
    elseif(file MATCHES "_fp16\\.cpp$")
      list(APPEND options -march=armv8.2-a+fp16)
    elseif(file MATCHES "_dotprod\\.cpp$")
      list(APPEND options -march=armv8.2-a+dotprod)
    elseif(file MATCHES "_i8mm\\.cpp$")
      list(APPEND options -march=armv8.2-a+dotprod+i8mm)
    endif()
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND file MATCHES "src_neon/")
      if(file MATCHES "/(gemm|index_softmax)_[^/]*\\.cpp$")
        list(APPEND options -fno-schedule-insns)
      endif()
      if(file MATCHES "/index_softmax_[^/]*\\.cpp$")
        list(APPEND options -fno-ivopts)
      endif()
    endif()
    set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${options}")
  endforeach()
endfunction()

# Before any target; the flags of kernel files come later on the command line and win.
macro(intattention_set_baseline march)
  if(NOT "${march}" STREQUAL "")
    add_compile_options(-march=${march})
  endif()
endmacro()
