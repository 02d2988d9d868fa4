"""Passages in several languages, each with questions that use other forms of its words."""

GERMAN = {
    "Die alten Häuser am Fluss wurden nach dem Hochwasser von der Stadt gekauft und werden nun "
    "wieder aufgebaut.": ["Haus am Fluss kaufen", "Wiederaufbau eines alten Hauses"],
    "Wer seine Schlüssel verliert, muss das Schloss auf eigene Kosten wechseln lassen; der "
    "Vermieter wird sofort benachrichtigt.": ["verlorener Schlüssel", "Kosten der Schlösser"],
    "Der Hund darf im Garten laufen, aber nicht auf den Beeten, die wir für das Gemüse angelegt "
    "haben.": ["Hunde im Gemüsebeet", "Gärten für Hunde"],
    "Kündigungen sind schriftlich einzureichen, und zwar drei Monate vor dem Ende der Laufzeit "
    "des Vertrags.": ["Frist einer Kündigung", "Verträge kündigen Monat"],
    "Die Ärztin verschrieb ihm größere Mengen eines Medikaments, das nicht mit Milch eingenommen "
    "werden sollte.": ["Arzt Medikamente Milch", "große Menge Medikament"],
    "Im Winter müssen die Straßen von den Anwohnern geräumt werden, bevor die Kinder zur Schule "
    "gehen.": ["STRASSE räumen", "Anwohner und Straße im Winter"],
}
FRENCH = {
    "Les locataires doivent prévenir le propriétaire trois mois avant de quitter leur logement, "
    "par une lettre recommandée.": ["locataire quittant un logement", "lettres recommandées"],
    "Nous avons planté des pommiers et des cerisiers dans le jardin, mais les oiseaux mangent "
    "toutes les cerises.": ["planter un cerisier", "oiseau mangeant une cerise"],
    "La machine s'arrête si la température est trop élevée; il faut alors nettoyer les filtres et "
    "attendre une heure.": ["machines arrêtées", "nettoyage du filtre", "temperatures elevees"],
    "Les enfants jouaient dans la rue quand la voiture est arrivée, et personne n'a été blessé par "
    "chance.": ["enfant blessé par une voiture", "jouer dans les rues"],
    "Le conseil a décidé de réparer les ponts anciens plutôt que d'en construire des nouveaux "
    "au-dessus du canal.": ["réparation d'un pont", "décisions du conseil"],
    "Ce vin se conserve pendant dix ans dans une cave fraîche, et il est meilleur avec des viandes "
    "grillées.": ["conservation des vins", "caves fraîches"],
}
SPANISH = {
    "Los perros no pueden entrar en los restaurantes, pero sí en las terrazas que tienen un cartel "
    "para ellos.": ["perro en un restaurante", "terraza con carteles"],
    "Las facturas se pagan en un plazo de treinta días desde que llegan a la oficina de la empresa."
    "": ["pagar la factura", "oficinas de las empresas"],
    "Mi abuela cocinaba las lentejas con verduras del huerto y nunca les ponía carne ni chorizo.": [
        "cocinar lenteja con verdura",
        "abuelas cocinando",
    ],
    "El tren llegó con dos horas de retraso porque la nieve había cortado las vías entre las dos "
    "ciudades.": ["trenes retrasados", "vía cortada por la nieve en la ciudad"],
    "Los niños aprenden a nadar antes de los seis años en casi todas las escuelas de la costa.": [
        "niño aprendiendo a nadar",
        "escuela costera",
    ],
    "Las canciones que grabó en su juventud fueron olvidadas hasta que una película las hizo "
    "famosas de nuevo.": ["canción famosa", "películas y canción olvidada"],
}
RUSSIAN = {
    "Новые книги поступают в библиотеку каждую пятницу, и читатели могут заказать их заранее.": [
        "новая книга",
        "библиотека для читателя",
        "заказ книг",
    ],
    "Собаки должны гулять на поводке, а их хозяева обязаны убирать за ними во всех парках города."
    "": ["хозяин собаки", "городской парк, собака"],
    "Поезд опоздал на два часа из-за сильного снега, который засыпал пути между станциями.": [
        "поезда опаздывают",
        "снег на путях",
    ],
    "Врачи советуют больным пить больше воды и не принимать лекарства без еды.": [
        "врач советовал воду",
        "лекарство, больной",
    ],
    "Дом построили ещё до войны, но его стены и крыша до сих пор крепкие и не требуют ремонта.": [
        "старые дома",
        "построенный до войны",
        "крыши и стена",
    ],
    "Детям рассказывали сказки о зверях, которые умели говорить и помогали бедным людям.": [
        "сказка о говорящем звере",
        "помощь бедному человеку",
    ],
}
JAPANESE = {
    "犬は公園で遊ぶのが好きですが、雨の日は家で寝ています。": ["犬", "公園の犬", "雨"],
    "東京都の図書館では、一度に十冊まで本を借りることができます。": ["図書館で本を借りた", "東京"],
    "電車が遅れたため、会議は三十分後に始まりました。": ["電車の遅れ", "会議を始める"],
    "この薬は食後に水と一緒に飲んでください。子供には与えないでください。": ["薬を飲む", "水"],
    "ｺﾝﾋﾟｭｰﾀの電源を切る前に、作業中のファイルを保存してください。": [
        "コンピュータ",
        "ファイルの保存",
    ],
    "桜の花は四月の初めに咲き、一週間ほどで散ってしまいます。": ["桜が咲いた", "花"],
}
ENGLISH = {
    "Dogs may run in the garden but not on the beds that were planted with vegetables for the "
    "kitchen.": ["dog in the gardens", "planting a vegetable bed"],
    "The keys of the old house were lost, and the tenants had to pay for a new lock themselves.": [
        "losing a key",
        "tenant paying for locks",
    ],
    "Trains were delayed for two hours because snow had covered the tracks between the stations.": [
        "delay of a train",
        "snow covering a track",
    ],
    "Doctors advise patients to drink more water and never to take these medicines without food.": [
        "doctor's advice",
        "taking medicine",
    ],
    "Books can be ordered in advance, and readers will be told by mail when they have arrived.": [
        "ordering a book",
        "mail to the reader",
    ],
    "Children learned to swim before they were six in nearly every school along the coast.": [
        "child learning to swim",
        "coastal schools swimming",
    ],
}
BY_LANGUAGE = {
    "german": GERMAN,
    "french": FRENCH,
    "spanish": SPANISH,
    "russian": RUSSIAN,
    "japanese": JAPANESE,
    "english": ENGLISH,
}
