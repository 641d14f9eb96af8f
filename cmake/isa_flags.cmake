# The only place with ISA flags. They go on kernel files alone, by suffix, so that no code compiled for
# a better CPU can end up in a baseline function.
function(intattention_set_isa_flags)
  foreach(file IN LISTS ARGN)
    if(file MATCHES "_avx2\\.cpp$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-mavx2;-mf16c;-mfma")
    elseif(file MATCHES "_avx512\\.cpp$")
      # GCC 12 warns about the deliberately undefined operand inside its own avx512fintrin.h.
      set_source_files_properties(
        ${file} PROPERTIES COMPILE_OPTIONS "-mavx2;-mf16c;-mfma;-mavx512f;-Wno-uninitialized;-Wno-maybe-uninitialized")
    elseif(file MATCHES "_fp16\\.cpp$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+fp16")
    elseif(file MATCHES "_dotprod\\.cpp$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod")
    elseif(file MATCHES "_i8mm\\.cpp$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod+i8mm")
    endif()
  endforeach()
endfunction()
