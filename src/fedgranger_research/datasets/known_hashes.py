"""Hashes of published files, as the publishers' repositories state them."""

HAI_SHA256 = {
    "hai-22.04/train1.csv": "63383690ffc5344ba68a019c7000854a4d341a22d743ac035f5207072a197b33",
    "hai-22.04/train2.csv": "f496991bbef4a6ef5881505aa242fe05cc500b4d5c4cea0d2cf1cf79e4e99285",
    "hai-22.04/train3.csv": "4910c49dc07cce238e05c449972a30b7588139ef92d36067f32aadd820e63de7",
    "hai-22.04/train4.csv": "81a1c3a8e1726c92c9253602b8628b72d0508a9c260ff21109433ad2b82687bf",
    "hai-22.04/train5.csv": "298468467991e73689b61f3cd3975ca21685ef8ba5b5ced4d6a7874f304d9cf7",
    "hai-22.04/train6.csv": "717b37b7b88b40885cb6994c9fe00d08a941ec0c3c73801e378f84e846ae35d4",
    "hai-22.04/test1.csv": "19627f5dac40c3a5039e7468cfd6c6e4ccd37a85055671e8c349b6bce5f50ed1",
    "hai-22.04/test2.csv": "b2ba5d6665deee1c86870a3970417b51a3e640a2cc18b9f8de2d6d8a21979923",
    "hai-22.04/test3.csv": "f253f1c78a4a4654d843f8f670a24caa7a72ac91e4418b4505009822b3c55940",
    "hai-22.04/test4.csv": "2d2e99ed3364d75d27ab84f0a6523496f7295decf363c90b8a1b9b84e1070376",
    "hai-23.05/hai-train1.csv": "53007b0ba604fbf338e7ac2e08cd81d874b5d1388f3aecb213ddcba5bf2bec4a",
    "hai-23.05/hai-train2.csv": "0e520e82bf78a661ab19ce4967f3c766bd809820f457a9c90c365102d4534c56",
    "hai-23.05/hai-train3.csv": "bfcec2dc05adea103e7491546b0e28268faaa26d3cc717d10f4595c94b81e85d",
    "hai-23.05/hai-train4.csv": "56658c83657d42a65db982b864362e0d0ffeb96d1f7b357d5e76e3a5c522d940",
    "hai-23.05/hai-test1.csv": "78c7f1d4de1f2ab9ccc2f8c719f80f831033543adb0c81d0d78f84f40838d4be",
    "hai-23.05/hai-test2.csv": "b2b8dd295aefd87e39260fe43cb4c73ee86d6264b0ac4b0761e7efb0c2b545c3",
    "hai-23.05/label-test1.csv": "eaf69edb9c5834bc393afd7bf658b5e408d34fd7bfc3261f80516765fb818fbc",
}
"""Version's folder/file -> SHA-256 of the unpacked csv, from the git-lfs pointers of
icsdataset/hai (commits 4700346 and ebcd09b). Versions 20.07 and 21.03 state none."""
